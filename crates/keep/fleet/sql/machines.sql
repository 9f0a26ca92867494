WITH parts AS (
    SELECT machine, CAST(sum(CASE WHEN layer IN ({recoverable}) THEN us ELSE 0 END) AS BIGINT) AS back_us,
        CAST(sum(us) AS BIGINT) AS capacity_us
    FROM {layers} AS l
    WHERE {where}
    GROUP BY machine
), about AS (
    SELECT machine, max_by(host, at_us) AS host, count(DISTINCT host) AS hosts, max_by(kernel, at_us) AS kernel,
        max_by(cpu_model, at_us) AS cpu_model, max_by(cpus, at_us) AS cpus, max_by(labels, at_us) AS labels,
        max_by(source, at_us) AS source, count(*) AS recordings, max(at_us) AS last_us
    FROM {recordings} AS r
    WHERE {where}
    GROUP BY machine
)
SELECT a.machine, a.host, a.hosts, a.kernel, a.cpu_model, a.cpus, a.labels, a.recordings, a.last_us, a.source,
    p.back_us, p.capacity_us
FROM parts AS p JOIN about AS a ON p.machine = a.machine
ORDER BY CAST(p.back_us AS DOUBLE) / p.capacity_us DESC, a.machine
LIMIT {top}
