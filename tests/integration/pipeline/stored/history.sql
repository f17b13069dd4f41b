-- What happened at the source of the stored lakes. A paragraph is a transaction, and a line of dashes ends what one
-- run of the pipeline found.

CREATE DATABASE shop;

CREATE TABLE shop.orders (
    id BIGINT PRIMARY KEY AUTO_INCREMENT, item VARCHAR(40), price DECIMAL(8,2), placed DATETIME(6)
);

CREATE TABLE shop.names (name VARCHAR(30) PRIMARY KEY, points INT UNSIGNED);

CREATE TABLE shop.parts (
    order_id INT, part SMALLINT UNSIGNED, code VARCHAR(10), amount INT, PRIMARY KEY (order_id, part, code)
);

CREATE TABLE shop.notes (written DATE, note VARCHAR(60));

CREATE TABLE shop.still (id INT PRIMARY KEY, text VARCHAR(20));

CREATE TABLE shop.kinds (
    id BINARY(16) PRIMARY KEY, tiny TINYINT, big BIGINT UNSIGNED, wide DECIMAL(30,10), single FLOAT, twice DOUBLE,
    day DATE, at TIMESTAMP(3) NULL, clock TIME(2), year YEAR, choice ENUM('a','b','ü'), some SET('x','y','z'),
    bits BIT(12), bytes VARBINARY(20), old CHAR(10) CHARACTER SET latin1, doc JSON
);

CREATE TABLE shop.cleared (id INT PRIMARY KEY, text VARCHAR(20));

INSERT INTO shop.orders (item, price, placed) VALUES
    ('anvil', 19.90, '2024-02-29 23:59:59.999999'), ('bucket', 4.50, '2025-01-01 00:00:00'), ('chain', NULL, NULL),
    ('drill', 99.00, '1999-12-31 12:00:00.5'), ('easel', 45.10, '2026-06-30 08:30:00'), ('file', 7.25, NULL),
    ('glue', 3.00, '2026-07-01 10:00:00'), ('hammer', 12.75, '2026-07-02 11:30:00.000001'), ('iron', 8.00, NULL),
    ('jack', 60.00, '2026-07-03 00:00:00');

INSERT INTO shop.names VALUES
    ('Ada', 1), ('Émile', 2), ('Grace', 3), ('Иван', 4), ('Linus', 5), ('美咲', 6), ('Zoë', 4294967295);

INSERT INTO shop.parts VALUES
    (1, 1, 'x', 5), (1, 2, 'x', 6), (1, 2, 'y', 7), (2, 1, 'x', 8), (2, 65535, 'z', NULL), (7, 3, '', 0);

INSERT INTO shop.notes VALUES
    ('2026-01-01', 'first'), ('2026-01-01', 'first'), (NULL, 'no day'), ('2026-01-02', NULL), ('2026-01-03', 'third');

INSERT INTO shop.still VALUES (1, 'one'), (2, 'two'), (3, 'three');

INSERT INTO shop.kinds VALUES
    (UNHEX('00112233445566778899AABBCCDDEE00'), -128, 18446744073709551615, 12345678901234567890.0123456789, 1.5, -0.1,
     '1000-01-01', '2026-03-29 01:30:00.125', '-838:59:59', 2026, 'ü', 'x,z', b'101', 0x00FF00, 'süß', '{"a": [1, null]}'),
    (UNHEX('FF112233445566778899AABBCCDDEEFF'), NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, '', '', 'null');

INSERT INTO shop.cleared VALUES (1, 'goes'), (2, 'goes too');

----------------------------------------

UPDATE shop.orders SET price = price + 1 WHERE id IN (2, 4, 6);

INSERT INTO shop.orders (item, price, placed) VALUES ('kettle', 23.00, '2026-08-01 09:00:00');
DELETE FROM shop.orders WHERE id = 3;
UPDATE shop.names SET points = points + 1 WHERE name <> 'Zoë';

ALTER TABLE shop.orders ADD COLUMN state VARCHAR(10) NOT NULL DEFAULT 'new', ADD COLUMN weight INT DEFAULT 100;

INSERT INTO shop.orders (item, price, state) VALUES ('ladder', 71.00, 'sent'), ('mallet', 15.00, 'new');

UPDATE shop.names SET name = 'Ada L.' WHERE name = 'Ada';
DELETE FROM shop.names WHERE name = 'Grace';

UPDATE shop.parts SET part = 9 WHERE order_id = 1 AND part = 1;
DELETE FROM shop.parts WHERE order_id = 7;

DELETE FROM shop.notes WHERE note = 'first' LIMIT 1;
INSERT INTO shop.notes VALUES ('2026-01-04', 'fourth'), ('2026-01-04', 'fourth');

UPDATE shop.kinds SET tiny = 7, doc = '{"b": "ü", "n": 1.50}' WHERE id = UNHEX('FF112233445566778899AABBCCDDEEFF');

----------------------------------------

UPDATE shop.orders SET state = 'paid', weight = NULL WHERE id IN (1, 5, 11);
DELETE FROM shop.orders WHERE id = 10;

INSERT INTO shop.names VALUES ('Grace', 30), ('Ken', 31);
UPDATE shop.parts SET amount = 100 WHERE order_id = 2;

INSERT INTO shop.notes VALUES ('2026-01-05', 'fifth');
DELETE FROM shop.notes WHERE note IS NULL;

UPDATE shop.kinds SET big = 1, at = '2026-10-25 02:30:00' WHERE id = UNHEX('00112233445566778899AABBCCDDEE00');

----------------------------------------

INSERT INTO shop.orders (item, price) VALUES ('nail', 0.10), ('oven', 400.00);
UPDATE shop.orders SET price = price * 2 WHERE id <= 4;

ALTER TABLE shop.orders ADD COLUMN checked DATE DEFAULT '2026-11-01';

DELETE FROM shop.orders WHERE id IN (5, 11);
INSERT INTO shop.orders (item, checked) VALUES ('plane', NULL);

UPDATE shop.names SET name = CONCAT(name, '!'), points = 0 WHERE name LIKE 'Z%' OR name = 'Иван';
DELETE FROM shop.names WHERE name = 'Ada L.';

UPDATE shop.parts SET order_id = 3, part = 1 WHERE order_id = 2 AND part = 1;
INSERT INTO shop.parts VALUES (2, 1, 'x', -1), (9, 0, 'ß', 1);

DELETE FROM shop.notes WHERE note = 'fourth' LIMIT 1;
UPDATE shop.notes SET written = '2026-02-01' WHERE note = 'no day';

DELETE FROM shop.kinds WHERE id = UNHEX('00112233445566778899AABBCCDDEE00');
INSERT INTO shop.kinds (id, choice, bits) VALUES (UNHEX('0A'), 'b', b'111111111111');

TRUNCATE TABLE shop.cleared;

INSERT INTO shop.cleared VALUES (2, 'new');
