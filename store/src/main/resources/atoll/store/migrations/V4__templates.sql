-- Templates with their versions, builds of their images, and what opens registries.

alter table sandboxes add column template_version bigint not null default 0;
alter table snapshots add column template_version bigint not null default 0;

-- One that comes with Atoll is here only once it was changed or deleted; a deleted one stays for a while.
create table templates (
    project_id text not null references projects (project_id),
    template_id text not null,
    current_version bigint not null,
    newest_version bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    deleted_at bigint,
    primary key (project_id, template_id)
);

create table template_versions (
    project_id text not null references projects (project_id),
    template_id text not null,
    version bigint not null,
    definition text not null,
    created_at bigint not null,
    primary key (project_id, template_id, version)
);

-- By what an image is made in: versions that are made in the same way share it.
create table template_images (
    image_key text primary key,
    digest text not null,
    made_at bigint not null
);

create table template_defaults (
    project_id text primary key references projects (project_id),
    template_id text not null
);

create table template_usage (
    project_id text not null references projects (project_id),
    template_id text not null,
    executions bigint not null,
    last_used_at bigint not null,
    primary key (project_id, template_id)
);

create table builds (
    build_id text primary key,
    project_id text not null references projects (project_id),
    template_id text not null,
    version bigint not null,
    image_key text not null,
    state text not null,
    cause text not null,
    no_cache bigint not null,
    step_number bigint not null,
    step_total bigint not null,
    step_text text not null,
    failure_code text,
    failure_message text,
    last_lines text,
    image_digest text,
    created_at bigint not null,
    started_at bigint,
    ended_at bigint
);

create index builds_newest on builds (project_id, template_id, created_at, build_id);
create index builds_by_state on builds (state, created_at);

create table registries (
    project_id text not null references projects (project_id),
    host text not null,
    username text not null,
    sealed_password text not null,
    updated_at bigint not null,
    primary key (project_id, host)
);
