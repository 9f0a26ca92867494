WITH named AS (
    SELECT machine, max_by(host, at_us) AS host, {last}
    FROM {recordings} AS r
    WHERE ({after}) AND ({where})
    GROUP BY machine
), facts AS (
    SELECT machine, CASE WHEN {after} THEN 1 ELSE 0 END AS period, 'layer' AS subject, layer AS name,
        us, CAST(round(CAST(us AS DOUBLE) * 1e6 / capacity_us) AS BIGINT) AS ppm
    FROM {layers} AS l
    WHERE ({before} OR {after}) AND ({where}) AND us > 0
    UNION ALL
    SELECT machine, CASE WHEN {after} THEN 1 ELSE 0 END AS period, 'lock' AS subject, concat(lock, ' ', type) AS name,
        spin_us AS us, CAST(round(CAST(spin_us AS DOUBLE) * 1e6 / capacity_us) AS BIGINT) AS ppm
    FROM {locks} AS k
    WHERE ({before} OR {after}) AND ({where}) AND spin_us > 0
    UNION ALL
    SELECT machine, CASE WHEN {after} THEN 1 ELSE 0 END AS period, 'machine' AS subject, '' AS name,
        capacity_us AS us, CAST(0 AS BIGINT) AS ppm
    FROM {recordings} AS c
    WHERE ({before} OR {after}) AND ({where})
)
SELECT {n.names}, f.machine, max(n.host) AS host, f.period, f.subject, f.name, count(*) AS recordings,
    CAST(sum(f.us) AS BIGINT) AS us, CAST(sum(f.ppm) AS BIGINT) AS ppm, CAST(sum(f.ppm * f.ppm) AS BIGINT) AS squares
FROM facts AS f JOIN named AS n ON f.machine = n.machine
GROUP BY {n.names}, f.machine, f.period, f.subject, f.name
