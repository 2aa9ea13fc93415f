"""``python -P -m app.driver``: a driver with Spark, told by the same environment variables as the service."""

from app.driver.entry import main
from app.driver.spark_runner import SparkRunner

if __name__ == "__main__":
    main(SparkRunner)
