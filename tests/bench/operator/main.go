// Operator is the tutorial's controller as an operator written by hand with controller-runtime: what
// `cargo xtask bench converge --peer go` compares with.
//
//	operator --kubeconfig FILE [--workers N] [--metrics-bind-address ADDRESS]
package main

import (
	"context"
	"flag"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// conflictDelay is what the queue's own first delay is.
const conflictDelay = 5 * time.Millisecond

func main() {
	// --kubeconfig is a flag of controller-runtime's.
	workers := flag.Int("workers", 5, "reconciles at once")
	metrics := flag.String("metrics-bind-address", "0", "where metrics are served; 0: nowhere")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), *workers, *metrics); err != nil {
		ctrl.Log.Error(err, "the operator ends")
		os.Exit(1)
	}
}

func run(ctx context.Context, workers int, metrics string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// The server has no limit on requests either: limits are not what is measured.
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	addToScheme(scheme)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: metrics},
		// No other Pods of the cluster.
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.SelectorFromSet(labels.Set{managedBy: operator})},
		}},
	})
	if err != nil {
		return err
	}
	r := &reconciler{Client: manager.GetClient(), scheme: scheme}
	if err := r.setUp(ctx, manager, workers); err != nil {
		return err
	}
	return manager.Start(ctx)
}
