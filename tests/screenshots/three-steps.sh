#!/usr/bin/env bash
# The recording of README.md: a hook in a ConfigMap, a controller, a parent. With `cargo xtask demo hello-python --keep` in another
# terminal, its KUBECONFIG and kubectl on the PATH, and asciinema 2 (PyPI) and svg-term-cli (npm):
#
#   asciinema rec --cols 100 --rows 34 --command tests/screenshots/three-steps.sh steps.cast
#   svg-term --in steps.cast --out runtime/docs/src/images/three-steps.svg --window --no-cursor --width 102 --height 27
set -euo pipefail
cd "$(dirname "$0")/../../guests/hello/python"

kubectl delete compositecontroller hello-controller --ignore-not-found > /dev/null
kubectl delete namespace hello --ignore-not-found --wait > /dev/null
kubectl apply -f ../crd.yaml > /dev/null
clear

# Types a command, and runs it.
step() {
  printf '\033[1;32m$\033[0m '
  for ((i = 0; i < ${#1}; i++)); do printf '%s' "${1:i:1}"; sleep 0.03; done
  sleep 0.4; echo
  eval "$1"
  sleep "${2:-1}"
}

step 'cat hook.py' 2
step 'kubectl create namespace hello && kubectl -n hello create configmap hello-hook --from-file=hook.py'
step 'kubectl apply -f controller.yaml'
step 'kubectl -n hello apply -f ../hello.yaml' 0
kubectl -n hello wait --for=jsonpath='{.status.phase}'=Succeeded pod/your-name --timeout=60s > /dev/null
step 'kubectl -n hello get helloworlds,pods'
step 'kubectl -n hello logs your-name' 3
