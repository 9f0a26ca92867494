WITH whole AS (
    SELECT {keys}, CAST(sum(user_lock_capacity_us) AS BIGINT) AS capacity_us
    FROM {recordings} AS r
    WHERE {where}
    GROUP BY {group}
), parts AS (
    SELECT {keys}, lock, type, process, CAST(sum(waits) AS BIGINT) AS waits, CAST(sum(spin_us) AS BIGINT) AS spin_us,
        CAST(sum(block_us) AS BIGINT) AS block_us, max(max_us) AS max_us, count(DISTINCT machine) AS machines
    FROM {user_locks} AS l
    WHERE {where}
    GROUP BY {group}, lock, type, process
)
SELECT {p.names}, p.lock, p.type, p.process, p.waits, p.spin_us, p.block_us, p.max_us, w.capacity_us, p.machines
FROM parts AS p JOIN whole AS w ON {same}
WHERE w.capacity_us > 0
ORDER BY CAST(p.spin_us + p.block_us AS DOUBLE) / w.capacity_us DESC, p.lock, p.type, p.process, {p.names}
LIMIT {top}
