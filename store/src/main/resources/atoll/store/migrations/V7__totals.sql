-- What is counted forever, while what was counted is removed by retention.

create table project_totals (
    project_id text primary key references projects (project_id),
    executions bigint not null
);

insert into project_totals (project_id, executions)
    select project_id, sum(executions) from template_usage group by project_id;

create index sandboxes_by_project_state on sandboxes (project_id, state);
