#!/bin/bash
# What the image runs: `millpond` with what it is given; or an executor of Spark's, which on
# Kubernetes is asked for with the one word `executor` and described by its environment.
set -euo pipefail
if [ "${1:-}" != executor ]; then
    exec millpond --log-format json "$@"
fi
jars=$(python3 -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("pyspark").origin).parent / "jars")')
readarray -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/^[^=]*=//')
exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-}:${SPARK_EXTRA_CLASSPATH:-}:$jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" --podName "$SPARK_EXECUTOR_POD_NAME" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID"
