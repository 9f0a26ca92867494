WITH parts AS (
    SELECT {keys}, layer, CAST(sum(us) AS BIGINT) AS us, sum(variance) AS variance,
        count(DISTINCT CASE WHEN us > 0 THEN machine END) AS machines
    FROM {layers} AS l
    WHERE {where}
    GROUP BY {group}, layer
), whole AS (
    SELECT {names}, CAST(sum(us) AS BIGINT) AS capacity_us
    FROM parts
    GROUP BY {names}
)
SELECT {p.names}, p.layer, CASE WHEN p.layer IN ({recoverable}) THEN 'yes' ELSE 'no' END AS recoverable,
    p.us, p.variance, w.capacity_us, p.machines
FROM parts AS p JOIN whole AS w ON {same}
WHERE p.us > 0
ORDER BY {p.names}, recoverable DESC, p.us DESC, p.layer
LIMIT {top}
