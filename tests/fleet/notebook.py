# The same table by Polars, by pyspark and by ncpu: notebook.py ROOT [sc://HOST:PORT | local[2]]; cells for Jupyter are
# marked by %%. NCPU_FLEET names the program where it is not `ncpu fleet` (target/release/ncpu-fleet).
# %%
import csv
import io
import os
import shlex
import subprocess
import sys

root = sys.argv[1]
ncpu = shlex.split(os.environ.get("NCPU_FLEET", "ncpu fleet"))


def by_ncpu(sql):
    """What ncpu's engine answers, a tuple of texts each row."""
    said = subprocess.run([*ncpu, "sql", root, sql, "-o", "csv"], check=True, capture_output=True, text=True)
    return [tuple(row) for row in csv.reader(io.StringIO(said.stdout))][1:]


def same(who, rows, others):
    """Whole numbers and texts are compared as they are written, and so are numbers: to the last digit."""
    def plain(row):
        return tuple(str(int(x)) if isinstance(x, float) and x.is_integer() else str(x) for x in row)
    rows, others = [plain(r) for r in rows], [plain([cell(x) for x in r]) for r in others]
    assert rows == others, f"{who} differs: {[p for p in zip(rows, others) if p[0] != p[1]][:3]}"
    print(f"{who}: the same {len(rows)} rows to the digit")


def cell(text):
    try:
        return float(text) if "." in text or "e" in text else text
    except (TypeError, ValueError):
        return text


# %% Polars: shares of layers by kernel, from the files
import polars as pl

layers = pl.scan_parquet(f"{root}/layers/**/*.parquet", hive_partitioning=True)
whole = layers.group_by("kernel").agg(pl.col("us").sum().alias("capacity_us"))
top = (
    layers.group_by("kernel", "layer").agg(pl.col("us").sum())
    .join(whole, on="kernel")
    .with_columns((100 * pl.col("us") / pl.col("capacity_us")).alias("share"))
    .select("kernel", "layer", "share").sort("kernel", "share", "layer", descending=[False, True, False])
    .collect()
)
print(top.head(6))

# %% Polars: which lock grew, on which type of machines, from the first half of the time to the second
locks = pl.scan_parquet(f"{root}/locks/**/*.parquet", hive_partitioning=True)
recordings = pl.scan_parquet(f"{root}/recordings/**/*.parquet", hive_partitioning=True)
first, last = recordings.select(pl.col("at_us").min(), pl.col("at_us").max().alias("last")).collect().row(0)
half = (first + last) // 2
period = (pl.col("at_us") >= half).cast(pl.Int64).alias("after")
kind = pl.col("labels").str.extract(r";type=([^;]*);").alias("type")
spins = locks.with_columns(period, kind).group_by("type", "after", "lock").agg(pl.col("spin_us").sum())
capacity = recordings.with_columns(period, kind).group_by("type", "after").agg(pl.col("lock_capacity_us").sum())
shares = spins.join(capacity, on=["type", "after"]).with_columns(
    (100 * pl.col("spin_us") / pl.col("lock_capacity_us")).alias("share"))
grown = (
    shares.group_by("type", "lock").agg(
        pl.col("share").filter(pl.col("after") == 1).sum().alias("after %"),
        pl.col("share").filter(pl.col("after") == 0).sum().alias("before %"))
    .with_columns((pl.col("after %") - pl.col("before %")).alias("change %"))
    .sort("change %", descending=True).head(3).collect()
)
print(grown)

# %% ncpu: the same two answers
same("ncpu and Polars, layers", top.iter_rows(), by_ncpu(
    "WITH w AS (SELECT kernel, CAST(sum(us) AS BIGINT) AS capacity_us FROM layers GROUP BY kernel), "
    "p AS (SELECT kernel, layer, CAST(sum(us) AS BIGINT) AS us FROM layers GROUP BY kernel, layer) "
    "SELECT p.kernel, p.layer, CAST(100 * p.us AS DOUBLE) / w.capacity_us AS share FROM p JOIN w ON p.kernel = w.kernel "
    "ORDER BY p.kernel, share DESC, p.layer"))
sums = spins.sort("type", "after", "lock").select("type", "after", "lock", "spin_us").collect()
same("ncpu and Polars, locks", sums.iter_rows(), by_ncpu(
    "SELECT split_part(split_part(labels, ';type=', 2), ';', 1) AS type, "
    f"CASE WHEN at_us >= {half} THEN 1 ELSE 0 END AS after, lock, CAST(sum(spin_us) AS BIGINT) AS us "
    "FROM locks GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"))

# %% pyspark: the same
if len(sys.argv) > 2:
    from pyspark.sql import SparkSession, functions as f

    where = SparkSession.builder.master if sys.argv[2].startswith("local") else SparkSession.builder.remote
    spark = where(sys.argv[2]).getOrCreate()
    rows = spark.read.parquet(f"{root}/layers")
    whole = rows.groupBy("kernel").agg(f.sum("us").alias("capacity_us"))
    shares = rows.groupBy("kernel", "layer").agg(f.sum("us").alias("us")).join(whole, "kernel")
    shares = shares.select("kernel", "layer", (100 * f.col("us") / f.col("capacity_us")).alias("share"))
    same("pyspark and Polars, layers", map(tuple, shares.orderBy("kernel", f.desc("share"), "layer").collect()), top.iter_rows())
    rows = spark.read.parquet(f"{root}/locks").select(
        f.regexp_extract("labels", ";type=([^;]*);", 1).alias("type"),
        (f.col("at_us") >= half).cast("long").alias("after"), "lock", "spin_us")
    spark_sums = rows.groupBy("type", "after", "lock").agg(f.sum("spin_us")).orderBy("type", "after", "lock")
    same("pyspark and Polars, locks", map(tuple, spark_sums.collect()), sums.iter_rows())
