WITH whole AS (
    SELECT {keys}, CAST(sum(call_capacity_us) AS BIGINT) AS capacity_us
    FROM {recordings} AS r
    WHERE {where}
    GROUP BY {group}
), parts AS (
    SELECT {keys}, class, detail, CAST(sum(samples) AS BIGINT) AS samples, CAST(sum(us) AS BIGINT) AS us,
        count(DISTINCT machine) AS machines
    FROM {calls} AS c
    WHERE {where}
    GROUP BY {group}, class, detail
)
SELECT {p.names}, p.class, p.detail, p.samples, p.us, w.capacity_us, p.machines
FROM parts AS p JOIN whole AS w ON {same}
WHERE w.capacity_us > 0
ORDER BY CAST(p.us AS DOUBLE) / w.capacity_us DESC, p.class, p.detail, {p.names}
LIMIT {top}
