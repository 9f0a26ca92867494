WITH named AS (
    SELECT machine, max_by(host, at_us) AS host, {last}
    FROM {recordings} AS r
    WHERE {where}
    GROUP BY machine
), facts AS (
    SELECT machine, 'layer' AS subject, layer AS name, us
    FROM {layers} AS l
    WHERE ({where}) AND us > 0
    UNION ALL
    SELECT machine, 'lock' AS subject, concat(lock, ' ', type) AS name, spin_us AS us
    FROM {locks} AS k
    WHERE ({where}) AND spin_us > 0
    UNION ALL
    SELECT machine, 'machine' AS subject, '' AS name, capacity_us AS us
    FROM {recordings} AS c
    WHERE {where}
)
SELECT {n.names}, f.machine, max(n.host) AS host, f.subject, f.name, CAST(sum(f.us) AS BIGINT) AS us
FROM facts AS f JOIN named AS n ON f.machine = n.machine
GROUP BY {n.names}, f.machine, f.subject, f.name
