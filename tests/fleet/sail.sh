#!/usr/bin/env bash
# sail.sh WORK [PORT]: starts moto (S3) and Sail with two worker processes for tests of fleets, and waits until both
# listen. A stand-in for the Kubernetes API starts the workers: Sail's own local cluster has threads. Prints shell
# variables to be evaluated; `kill $STOP` ends all. WORK/env is made with pip where it is missing (network).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$1 port=${2:-50071}
mkdir -p "$work"
if [ ! -x "$work/env/bin/sail" ]; then
	python3 -m venv "$work/env"
	"$work/env/bin/pip" install -q --disable-pip-version-check pysail==0.7.2 'adbc-driver-flightsql==1.*' \
		'moto[server,s3]==5.2.5' boto3 polars >&2
fi
s3=$((port + 1)) k8s=$((port + 2))
cat >"$work/kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:$k8s"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: default}}]
current-context: x
EOF
export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=y AWS_REGION=us-east-1
export AWS_ENDPOINT=http://127.0.0.1:$s3 AWS_ENDPOINT_URL=http://127.0.0.1:$s3 AWS_ALLOW_HTTP=true
export AWS_VIRTUAL_HOSTED_STYLE_REQUEST=false KUBECONFIG=$work/kubeconfig
"$work/env/bin/moto_server" -H 127.0.0.1 -p $s3 >"$work/moto.log" 2>&1 &
pids=$!
python3 "$here/fakek8s.py" "$work/env/bin/sail" $k8s "$work" >"$work/k8s.log" 2>&1 &
pids="$pids $!"
SAIL_MODE=kubernetes-cluster SAIL_CLUSTER__WORKER_INITIAL_COUNT=2 SAIL_CLUSTER__WORKER_MAX_COUNT=2 \
	SAIL_CLUSTER__WORKER_TASK_SLOTS=32 "$work/env/bin/sail" flight server --port "$port" >"$work/sail.log" 2>&1 &
pids="$! $pids"
for i in $(seq 150); do
	(echo >/dev/tcp/127.0.0.1/$s3 && echo >/dev/tcp/127.0.0.1/"$port") 2>/dev/null && break
	sleep 0.2
done
driver=$(echo "$work"/env/lib/python3*/site-packages/adbc_driver_flightsql/*.so)
cat <<EOF
export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=y AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$s3
export NCPU_FLIGHTSQL=$driver
SAIL=grpc://127.0.0.1:$port STOP="$pids"
EOF
