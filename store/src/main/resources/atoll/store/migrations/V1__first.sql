-- The same SQL runs on SQLite and PostgreSQL. Ids are text, times are microseconds since 1970, JSON is text.
-- Every table belongs to a project: tenants are a column, never an afterthought.

create table projects (
    project_id text primary key,
    name text not null,
    created_at bigint not null
);

insert into projects (project_id, name, created_at) values ('default', 'default', 0);

create table api_keys (
    key_id text primary key,
    project_id text not null references projects (project_id),
    name text not null,
    hash text not null unique,
    shown_prefix text not null,
    scopes text not null,
    created_at bigint not null,
    expires_at bigint,
    last_used_at bigint
);

create table sandboxes (
    sandbox_id text primary key,
    project_id text not null references projects (project_id),
    template text not null,
    state text not null,
    memory_bytes bigint not null,
    cpu_millis bigint not null,
    disk_bytes bigint not null,
    max_processes bigint not null,
    max_open_files bigint not null,
    labels text not null,
    box_id text not null,
    run_id text not null,
    created_at bigint not null,
    ended_at bigint,
    end_reason text,
    end_detail text
);

create index sandboxes_newest on sandboxes (project_id, created_at, sandbox_id);
create index sandboxes_by_state on sandboxes (state, ended_at);

create table sandbox_labels (
    sandbox_id text not null references sandboxes (sandbox_id) on delete cascade,
    project_id text not null references projects (project_id),
    name text not null,
    value text not null,
    primary key (sandbox_id, name)
);

create index sandbox_labels_by_value on sandbox_labels (project_id, name, value);

create table runs (
    run_id text primary key,
    project_id text not null references projects (project_id),
    sandbox_id text not null references sandboxes (sandbox_id) on delete cascade,
    started_at bigint not null,
    ended_at bigint,
    end_reason text,
    end_detail text
);

create index runs_by_sandbox on runs (sandbox_id);

create table contexts (
    context_id text primary key,
    project_id text not null references projects (project_id),
    sandbox_id text not null references sandboxes (sandbox_id) on delete cascade,
    language text not null,
    is_default bigint not null,
    created_at bigint not null
);

create index contexts_by_sandbox on contexts (sandbox_id, created_at);

-- No foreign keys: an execution outlives its sandbox's record, and its row is written later than the sandbox's.
create table executions (
    execution_id text primary key,
    project_id text not null,
    sandbox_id text not null,
    context_id text not null,
    language text not null,
    code text not null,
    code_bytes bigint not null,
    created_at bigint not null,
    running bigint not null,
    exit_reason text,
    exit_code bigint,
    exit_signal bigint,
    state_kept bigint,
    detail text,
    output text,
    output_truncated bigint,
    stdout text,
    stdout_bytes bigint,
    stdout_truncated bigint,
    stderr text,
    stderr_bytes bigint,
    stderr_truncated bigint,
    results text,
    error_name text,
    error_message text,
    error_traceback text,
    memory_limit_bytes bigint,
    memory_peak_bytes bigint,
    started_at bigint,
    duration_nanos bigint,
    truncated bigint
);

create index executions_newest on executions (project_id, created_at, execution_id);
create index executions_by_sandbox on executions (sandbox_id, created_at, execution_id);
create index executions_running on executions (running, created_at);

create table events (
    event_id bigint primary key,
    project_id text not null references projects (project_id),
    at bigint not null,
    kind text not null,
    subject text not null,
    detail text not null
);

create index events_by_project on events (project_id, event_id);

create table idempotency_keys (
    project_id text not null references projects (project_id),
    operation text not null,
    idempotency_key text not null,
    request_hash text not null,
    result_id text not null,
    created_at bigint not null,
    primary key (project_id, operation, idempotency_key)
);

-- Of the installation, not of a project.
create table node_epochs (
    node text primary key,
    epoch bigint not null
);
