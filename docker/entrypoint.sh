#!/bin/sh
# The roles of the image: master, worker, history, submit; anything else is an argument of shardpiece itself.
set -eu
SPARK_HOME="$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')"
export SPARK_HOME
role="${1:-}"
case "$role" in
  master)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master --host spark-master --port 7077 --webui-port 8080 ;;
  worker)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker --work-dir /tmp/spark-work spark://spark-master:7077 ;;
  history)
    SPARK_HISTORY_OPTS="-Dspark.history.fs.logDirectory=file:///events ${SPARK_HISTORY_OPTS:-}"
    export SPARK_HISTORY_OPTS
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.history.HistoryServer ;;
  submit)
    shift
    if [ "${1:-}" = demo-corpus ]; then
      exec python3 /opt/shardpiece/docker/demo_corpus.py s3://corpus/stdlib
    fi
    exec shardpiece "$@" ;;
  *)
    exec shardpiece "$@" ;;
esac
