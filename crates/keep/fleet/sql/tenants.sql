WITH whole AS (
    SELECT {names}, CAST(sum(capacity_us) AS BIGINT) AS capacity_us
    FROM (SELECT DISTINCT {keys}, id, capacity_us FROM {ledger} AS l WHERE {where}) AS r
    GROUP BY {names}
), losses AS (
    SELECT {keys}, victim, culprit, cause, lock, machine, max_by(host, at_us) AS host,
        CAST(sum(threads_us) AS BIGINT) AS threads_us
    FROM {ledger} AS l
    WHERE {where} AND culprit <> '' AND culprit <> victim
    GROUP BY {group}, victim, culprit, cause, lock, machine
), ranked AS (
    SELECT {names}, victim, culprit, cause, lock, host, threads_us,
        row_number() OVER (PARTITION BY {names}, victim, culprit, cause, lock ORDER BY threads_us DESC, machine) AS place
    FROM losses
), parts AS (
    SELECT {names}, victim, culprit, cause, lock, CAST(sum(threads_us) AS BIGINT) AS threads_us,
        CAST(count(*) AS BIGINT) AS machines, max(CASE WHEN place = 1 THEN host END) AS worst,
        max(threads_us) AS worst_us
    FROM ranked
    GROUP BY {names}, victim, culprit, cause, lock
), victims AS (
    SELECT {keys}, victim, CAST(count(DISTINCT machine) AS BIGINT) AS machines
    FROM {ledger} AS l
    WHERE {where}
    GROUP BY {group}, victim
)
SELECT {p.names}, p.victim, p.culprit, p.cause, p.lock, p.threads_us, w.capacity_us, p.machines, v.machines AS victim_machines,
    p.worst, p.worst_us
FROM parts AS p JOIN whole AS w ON {same} JOIN victims AS v ON {v.same} AND p.victim = v.victim
WHERE w.capacity_us > 0
ORDER BY CAST(p.threads_us AS DOUBLE) / w.capacity_us DESC, p.victim, p.culprit, p.cause, p.lock, {p.names}
LIMIT {top}
