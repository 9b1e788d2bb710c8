-- Programs in sandboxes, what sandboxes use, contexts with a folder and an environment of their own, main processes.

alter table contexts add column cwd text not null default '';
alter table contexts add column env text not null default '{}';
alter table contexts add column closed_at bigint;

alter table sandboxes add column main_process_id text;
alter table sandboxes add column main_ends_sandbox bigint not null default 0;
alter table sandboxes add column exit_code bigint;

-- No foreign keys: a process outlives its sandbox's record.
create table processes (
    process_id text primary key,
    project_id text not null,
    sandbox_id text not null,
    argv text not null,
    command text,
    cwd text not null,
    user_name text not null,
    has_stdin bigint not null,
    timeout_ms bigint,
    terminal_columns bigint,
    terminal_rows bigint,
    labels text not null,
    is_main bigint not null,
    created_at bigint not null,
    running bigint not null,
    pid bigint not null,
    started_at bigint,
    stdout_bytes bigint not null,
    stderr_bytes bigint not null,
    stdin_offset bigint not null,
    stdin_closed bigint not null,
    end_reason text,
    exit_code bigint,
    exit_signal bigint,
    detail text,
    memory_limit_bytes bigint,
    memory_peak_bytes bigint,
    ended_at bigint,
    duration_nanos bigint
);

create index processes_newest on processes (project_id, created_at, process_id);
create index processes_by_sandbox on processes (sandbox_id, created_at, process_id);
create index processes_running on processes (running, created_at);

create table process_labels (
    process_id text not null references processes (process_id) on delete cascade,
    project_id text not null,
    name text not null,
    value text not null,
    primary key (process_id, name)
);

create index process_labels_by_value on process_labels (project_id, name, value);

-- No foreign keys: samples go by their age.
create table usage_samples (
    sandbox_id text not null,
    at bigint not null,
    cpu_percent_hundredths bigint,
    cpu_us bigint not null,
    throttled_us bigint not null,
    memory_bytes bigint not null,
    memory_limit_bytes bigint not null,
    memory_peak_bytes bigint not null,
    disk_bytes bigint not null,
    disk_limit_bytes bigint not null,
    processes bigint not null,
    primary key (sandbox_id, at)
);

create index usage_samples_by_age on usage_samples (at);
