# The same table by Polars and pyspark: notebook.py ROOT [sc://HOST:PORT | local[2]]; cells for Jupyter are marked by %%.
# %%
import sys

root = sys.argv[1]

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

# %% pyspark: the same
if len(sys.argv) > 2:
    from pyspark.sql import SparkSession, functions as f

    where = SparkSession.builder.master if sys.argv[2].startswith("local") else SparkSession.builder.remote
    spark = where(sys.argv[2]).getOrCreate()
    rows = spark.read.parquet(f"{root}/layers")
    whole = rows.groupBy("kernel").agg(f.sum("us").alias("capacity_us"))
    shares = rows.groupBy("kernel", "layer").agg(f.sum("us").alias("us")).join(whole, "kernel")
    shares = shares.select("kernel", "layer", (100 * f.col("us") / f.col("capacity_us")).alias("share"))
    spark_top = shares.orderBy("kernel", f.desc("share"), "layer").collect()
    assert [tuple(r) for r in spark_top] == list(top.iter_rows()), "Polars and pyspark differ"
    print(f"pyspark: the same {len(spark_top)} rows to the digit")
