-- The nine tables of the specification for SQLite and PostgreSQL. Times are microseconds since 1970, UTC.
-- {blob} is BLOB or BYTEA; ids are text, so that a shell can read them.

-- The event store: the keys of these four tables begin alike.

CREATE TABLE IF NOT EXISTS es_transaction (
    region              text NOT NULL,
    cluster             text NOT NULL,
    service_name        text NOT NULL,
    transaction_id      text NOT NULL,
    running_status      text,
    created_at          bigint,
    updated_at          bigint,
    payload             {blob},
    restore_date        text,
    restore_window      integer,
    restore_instance_id text,
    restore_bucket      integer,
    PRIMARY KEY (region, cluster, service_name, transaction_id)
);

CREATE TABLE IF NOT EXISTS es_transaction_tryout (
    region          text NOT NULL,
    cluster         text NOT NULL,
    service_name    text NOT NULL,
    transaction_id  text NOT NULL,
    tryout_index    integer NOT NULL,
    executor        text,
    execution_type  text,
    status          text,
    created_at      bigint,
    PRIMARY KEY (region, cluster, service_name, transaction_id, tryout_index)
);

CREATE TABLE IF NOT EXISTS es_frozen_transaction (
    region          text NOT NULL,
    cluster         text NOT NULL,
    service_name    text NOT NULL,
    transaction_id  text NOT NULL,
    frozen_at       bigint,
    reason          text,
    PRIMARY KEY (region, cluster, service_name, transaction_id)
);

CREATE TABLE IF NOT EXISTS es_execution_markers (
    region          text NOT NULL,
    cluster         text NOT NULL,
    service_name    text NOT NULL,
    transaction_id  text NOT NULL,
    step_id         text NOT NULL,
    execution_state text,
    PRIMARY KEY (region, cluster, service_name, transaction_id, step_id)
);

-- The recovery directory, tiers 1 to 5.

CREATE TABLE IF NOT EXISTS es_days_by_year (
    region          text NOT NULL,
    cluster         text NOT NULL,
    service_name    text NOT NULL,
    year            integer NOT NULL,
    date_of_year    text NOT NULL,
    PRIMARY KEY (region, cluster, service_name, year, date_of_year)
);

CREATE TABLE IF NOT EXISTS es_recovery_windows_by_day (
    region          text NOT NULL,
    cluster         text NOT NULL,
    service_name    text NOT NULL,
    date_of_year    text NOT NULL,
    minute_of_day   integer NOT NULL,
    PRIMARY KEY (region, cluster, service_name, date_of_year, minute_of_day)
);

CREATE TABLE IF NOT EXISTS es_instances_by_recovery_window (
    region              text NOT NULL,
    cluster             text NOT NULL,
    service_name        text NOT NULL,
    date_of_year        text NOT NULL,
    minute_of_day       integer NOT NULL,
    instance_id_token   bigint NOT NULL,
    instance_id         text NOT NULL,
    PRIMARY KEY (region, cluster, service_name, date_of_year, minute_of_day, instance_id_token, instance_id)
);

CREATE TABLE IF NOT EXISTS es_buckets_by_instance (
    region          text NOT NULL,
    cluster         text NOT NULL,
    service_name    text NOT NULL,
    date_of_year    text NOT NULL,
    minute_of_day   integer NOT NULL,
    instance_id     text NOT NULL,
    bucket_index    integer NOT NULL,
    PRIMARY KEY (region, cluster, service_name, date_of_year, minute_of_day, instance_id, bucket_index)
);

CREATE TABLE IF NOT EXISTS es_recovery_transactions_by_instance (
    region          text NOT NULL,
    cluster         text NOT NULL,
    service_name    text NOT NULL,
    date_of_year    text NOT NULL,
    minute_of_day   integer NOT NULL,
    instance_id     text NOT NULL,
    bucket_index    integer NOT NULL,
    transaction_id  text NOT NULL,
    PRIMARY KEY (region, cluster, service_name, date_of_year, minute_of_day, instance_id, bucket_index, transaction_id)
);
