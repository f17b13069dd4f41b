CREATE TABLE outbox (
  id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  aggregatetype VARCHAR(100) NOT NULL,
  aggregateid VARCHAR(100) NOT NULL,
  type VARCHAR(100) NOT NULL,
  payload JSON
)
