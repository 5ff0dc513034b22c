-- What PostgreSQL of deploy/compose.yaml gets before its first start: a role for the coordinators that
-- owns its database and nothing else. The superuser loses its password, so that it can log in from
-- inside the container alone (docker compose exec postgres psql -U postgres tally).
\set password `cat /run/secrets/postgres-password`
CREATE ROLE tally LOGIN PASSWORD :'password';
CREATE DATABASE tally OWNER tally;
REVOKE ALL ON DATABASE tally FROM PUBLIC;
ALTER ROLE postgres PASSWORD NULL;
