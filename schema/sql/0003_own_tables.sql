-- What every process of one service must agree on (R15); clock_skew_margin is in microseconds.
CREATE TABLE es_settings (
    region            text NOT NULL,
    cluster           text NOT NULL,
    service_name      text NOT NULL,
    schema_version    integer,
    window_interval   integer,
    clock_skew_margin bigint,
    PRIMARY KEY (region, cluster, service_name)
);

-- Transactions by time of start. A row may be forgotten once the database's clock has passed expires_at.
CREATE TABLE es_transaction_by_start (
    region         text NOT NULL,
    cluster        text NOT NULL,
    service_name   text NOT NULL,
    date_of_year   text NOT NULL,
    minute_of_day  integer NOT NULL,
    shard          integer NOT NULL,
    transaction_id text NOT NULL,
    saga_name      text,
    created_at     bigint,
    expires_at     bigint,
    PRIMARY KEY (region, cluster, service_name, date_of_year, minute_of_day, shard, transaction_id)
);

-- Which of these files were applied, since SQL has no ADD COLUMN IF NOT EXISTS everywhere.
CREATE TABLE es_schema_migration (
    version    integer NOT NULL PRIMARY KEY,
    applied_at bigint NOT NULL
);
