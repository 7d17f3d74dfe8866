"""How intake asks for executors in its own cluster, and what such a pod runs."""

from pathlib import Path

import pytest
from punctual_worker.intake.executor import ExecutorError, command
from punctual_worker.intake.session import SessionError, own_cluster, spark_conf
from punctual_worker.settings import Settings

POD = {
    "JAVA_HOME": "/opt/java",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "demo-intake-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dfirst=1",
}
CLUSTER = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "POD_NAME": "demo-intake-x",
}


def test_an_executors_command_has_all_that_spark_asks_for_in_its_order() -> None:
    words = command(POD, jars=Path("/spark/jars"))
    assert words[0] == "/opt/java/bin/java"
    assert words.index("-Dfirst=1") < words.index("-Dlast=1") < words.index("-Xmx512m")
    assert words[words.index("-cp") + 1] == "/spark/jars/*"
    more = command({**POD, "SPARK_CLASSPATH": "/opt/more/*"}, jars=Path("/spark/jars"))
    assert more[more.index("-cp") + 1] == "/opt/more/*:/spark/jars/*"
    arguments = words[words.index("--driver-url") :]
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--driver-url": POD["SPARK_DRIVER_URL"],
        "--executor-id": "1",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "demo-intake-exec-1",
    }


def test_who_starts_an_executor_by_hand_is_told_that_it_is_not_for_that() -> None:
    with pytest.raises(ExecutorError, match="SPARK_DRIVER_URL is not set: executors are started"):
        command({k: v for k, v in POD.items() if k != "SPARK_DRIVER_URL"}, jars=Path("/"))


def test_the_own_cluster_is_where_every_pod_is_told_that_it_is() -> None:
    assert own_cluster(CLUSTER)["spark.master"] == "k8s://https://10.0.0.1:443"
    six = own_cluster({**CLUSTER, "KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert six["spark.master"] == "k8s://https://[fd00::1]:443"
    assert six["spark.kubernetes.driver.pod.name"] == "demo-intake-x"
    # a container that is started again finds the pods of its former life's executors
    prefixes = [own_cluster(CLUSTER)["spark.kubernetes.executor.podNamePrefix"] for _ in range(2)]
    assert prefixes[0] != prefixes[1]
    assert all(one.startswith("demo-intake-x-") for one in prefixes)
    with pytest.raises(SessionError, match="KUBERNETES_SERVICE_HOST is not set: is this a pod"):
        own_cluster({})


def test_executors_judge_with_the_same_limits_as_this_process_would() -> None:
    remote = Settings(intake_master="k8s://https://somewhere", request_max_bytes=2048)
    conf = spark_conf(remote, jars=[], slots=1)
    for side in ("driver", "executor"):
        options = conf[f"spark.{side}.defaultJavaOptions"]
        assert "-Dorg.apache.avro.limits.bytes.maxLength=2048" in options
    assert "spark.executor.defaultJavaOptions" not in spark_conf(Settings(), jars=[], slots=1)
    own = Settings(spark={"spark.driver.extraJavaOptions": "-Dmine=1"})
    conf = spark_conf(own, jars=[], slots=1)
    assert conf["spark.driver.extraJavaOptions"] == "-Dmine=1"
    assert "avro.limits" in conf["spark.driver.defaultJavaOptions"]
