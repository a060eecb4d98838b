-- What the specification's tables lack (design, section 3). Migrations only add.
-- committed_steps and reverts are JSON arrays.

ALTER TABLE es_transaction ADD COLUMN saga_name text;
ALTER TABLE es_transaction ADD COLUMN saga_version integer;
ALTER TABLE es_transaction ADD COLUMN payload_version integer;
ALTER TABLE es_transaction ADD COLUMN epoch integer;
ALTER TABLE es_transaction ADD COLUMN committed_steps text;
ALTER TABLE es_transaction ADD COLUMN possibly_done boolean;
ALTER TABLE es_transaction ADD COLUMN reverts text;
ALTER TABLE es_transaction ADD COLUMN retry_date text;
ALTER TABLE es_transaction ADD COLUMN retry_window integer;
ALTER TABLE es_transaction ADD COLUMN retry_instance_id text;
ALTER TABLE es_transaction ADD COLUMN retry_bucket integer;
ALTER TABLE es_transaction ADD COLUMN attempt integer;
ALTER TABLE es_transaction ADD COLUMN start_hash text;
ALTER TABLE es_transaction ADD COLUMN protection_mode text;
ALTER TABLE es_transaction ADD COLUMN waited bigint;
ALTER TABLE es_transaction ADD COLUMN status_before_freezing text;
ALTER TABLE es_transaction ADD COLUMN reason text;
ALTER TABLE es_transaction ADD COLUMN public_result {blob};
ALTER TABLE es_transaction_tryout ADD COLUMN error text;
ALTER TABLE es_transaction_tryout ADD COLUMN finished_at bigint;
ALTER TABLE es_transaction_tryout ADD COLUMN instance_id text;
ALTER TABLE es_execution_markers ADD COLUMN result {blob};

-- SQL has no time to live: a marker is gone once the database's clock has passed this moment.
ALTER TABLE es_execution_markers ADD COLUMN expires_at bigint;

-- First in, first out within a bucket. SQLite needs no column for it: it orders by its rowid.
-- only postgresql
ALTER TABLE es_recovery_transactions_by_instance ADD COLUMN sequence bigint GENERATED ALWAYS AS IDENTITY;
