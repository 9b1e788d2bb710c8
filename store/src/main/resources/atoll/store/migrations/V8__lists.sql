-- Lists whose filters would otherwise look at every execution there is.

create index executions_by_context on executions (context_id, created_at, execution_id);
create index executions_that_run on executions (project_id, created_at, execution_id) where running = 1;
