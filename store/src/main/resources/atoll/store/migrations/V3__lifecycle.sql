-- Names, lifetimes and pauses of sandboxes, their lives one by one, snapshots, and contexts that are copies.

alter table sandboxes add column name text;
alter table sandboxes add column env text not null default '{}';
alter table sandboxes add column lifetime_ms bigint;
alter table sandboxes add column idle_timeout_ms bigint;
alter table sandboxes add column on_timeout text not null default 'PAUSE';
alter table sandboxes add column auto_resume bigint not null default 1;
alter table sandboxes add column expires_at bigint;
alter table sandboxes add column paused_at bigint;
alter table sandboxes add column last_active_at bigint;
alter table sandboxes add column paused_in text;
alter table sandboxes add column is_copy bigint not null default 0;
alter table sandboxes add column origin_sandbox_id text;
alter table sandboxes add column origin_snapshot_id text;

-- A name belongs to one live sandbox at a time; ended ones keep it on record.
create unique index sandboxes_by_name on sandboxes (project_id, name) where state <> 'ENDED';

alter table runs add column how text not null default 'START';
alter table runs add column snapshot_from text;
alter table runs add column snapshot_into text;

alter table contexts add column origin_id text;

-- No foreign keys: a snapshot outlives its sandbox's record.
create table snapshots (
    snapshot_id text primary key,
    project_id text not null references projects (project_id),
    name text,
    kind text not null,
    sandbox_id text,
    template text not null,
    parent_snapshot_id text,
    memory_bytes bigint not null,
    cpu_millis bigint not null,
    disk_bytes bigint not null,
    max_processes bigint not null,
    max_open_files bigint not null,
    env text not null,
    contexts text not null,
    labels text not null,
    state text not null,
    size_bytes bigint not null,
    stopped_us bigint not null,
    created_at bigint not null,
    expires_at bigint,
    detail text not null
);

create unique index snapshots_by_name on snapshots (project_id, name) where state <> 'LOST';
create index snapshots_newest on snapshots (project_id, created_at, snapshot_id);
create index snapshots_by_sandbox on snapshots (sandbox_id, created_at, snapshot_id);
create index snapshots_by_state on snapshots (state, created_at);

create table snapshot_labels (
    snapshot_id text not null references snapshots (snapshot_id) on delete cascade,
    project_id text not null,
    name text not null,
    value text not null,
    primary key (snapshot_id, name)
);

create index snapshot_labels_by_value on snapshot_labels (project_id, name, value);
