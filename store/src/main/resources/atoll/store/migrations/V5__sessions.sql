-- Sessions of people at a browser: by the hash of their token, with the rights of a key, and gone with it.
create table sessions (
    hash text primary key,
    key_id text not null references api_keys (key_id) on delete cascade,
    created_at bigint not null,
    expires_at bigint not null
);

create index sessions_by_key on sessions (key_id);
