-- What happened to one thing, in order.

create index events_by_subject on events (project_id, subject, event_id);
