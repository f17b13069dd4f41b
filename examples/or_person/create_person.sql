CREATE TABLE person (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    first_name VARCHAR(120) NOT NULL,
    last_name VARCHAR(120) NOT NULL,
    birth_date DATE,
    deleted VARCHAR(5) DEFAULT 'false' NOT NULL
);
INSERT INTO person (first_name, last_name, birth_date) VALUES ('Ada', 'Lovelace', '1815-12-10');
INSERT INTO person (first_name, last_name, birth_date) VALUES
    ('Grace', 'Hopper', '1906-12-09'), ('Edgar', 'Codd', '1923-08-19');
INSERT INTO person (first_name, last_name, birth_date) VALUES
    ('Jim', 'Gray', '1944-01-12'), ('Barbara', 'Liskov', '1939-11-07'), ('Leslie', 'Lamport', '1941-02-07'),
    ('Edsger', 'Dijkstra', '1930-05-11');
INSERT INTO person (first_name, last_name, birth_date) VALUES
    ('Tony', 'Hoare', '1934-01-11'), ('Frances', 'Allen', '1932-08-04');
