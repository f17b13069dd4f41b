-- shop.orders as of the newest change: the newest image of each key after the newest TRUNCATE, unless it is a delete.
CREATE MATERIALIZED VIEW orders AS
WITH kept AS (
  SELECT * FROM order_changes
  WHERE _seq > (SELECT max(_seq) FROM order_changes WHERE _op = 't')
     OR NOT EXISTS (SELECT 1 FROM order_changes WHERE _op = 't')
),
newest AS (
  SELECT max_by(struct(*), _seq) AS image FROM kept GROUP BY id
)
SELECT image.* EXCEPT (_op, _table) FROM newest WHERE image._op <> 'd'
