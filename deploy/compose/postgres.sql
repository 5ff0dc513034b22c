-- The PostgreSQL of deploy/compose.yaml runs this before its first start. It creates a role for the
-- coordinators, which owns its database and nothing else. The superuser loses its password, so that it
-- can log in only from inside the container (docker compose exec postgres psql -U postgres tally).
\set password `cat /run/secrets/postgres-password`
CREATE ROLE tally LOGIN PASSWORD :'password';
CREATE DATABASE tally OWNER tally;
REVOKE ALL ON DATABASE tally FROM PUBLIC;
ALTER ROLE postgres PASSWORD NULL;
