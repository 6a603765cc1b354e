package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const (
	managedBy = "app.kubernetes.io/managed-by"
	operator  = "hello-operator"
	// ownerUID is the index of Pods by the parent that controls them.
	ownerUID = "metadata.ownerReferences.uid"
)

type reconciler struct {
	client.Client
	scheme *runtime.Scheme
}

func (r *reconciler) setUp(ctx context.Context, manager ctrl.Manager, workers int) error {
	owner := func(object client.Object) []string {
		if of := metav1.GetControllerOf(object); of != nil {
			return []string{string(of.UID)}
		}
		return nil
	}
	if err := manager.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, ownerUID, owner); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		// Its own writes of status are no news.
		For(&HelloWorld{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// Reconcile has the parent have its one Pod, and its status say so.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var parent HelloWorld
	if err := r.Get(ctx, request.NamespacedName, &parent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !parent.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector takes the Pod
	}
	var pods corev1.PodList
	mine := client.MatchingFields{ownerUID: string(parent.UID)}
	if err := r.List(ctx, &pods, client.InNamespace(parent.Namespace), mine); err != nil {
		return ctrl.Result{}, err
	}
	desired, err := r.pod(&parent)
	if err != nil {
		return ctrl.Result{}, err
	}
	count := len(pods.Items)
	if current := named(pods.Items, desired.Name); current == nil {
		if err := r.Create(ctx, desired); err != nil {
			return ctrl.Result{}, err // the cache may be behind: the queue asks again
		}
		count++
	} else if !equality.Semantic.DeepDerivative(desired.Spec, current.Spec) {
		// A Pod's command is immutable. Its end is an event, and the next one is made then.
		return ctrl.Result{}, r.remove(ctx, current)
	}
	return r.report(ctx, &parent, HelloWorldStatus{Pods: count, ObservedGeneration: parent.Generation})
}

func (r *reconciler) pod(parent *HelloWorld) (*corev1.Pod, error) {
	who := "World"
	if parent.Spec.Who != nil {
		who = *parent.Spec.Who
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      parent.Name,
			Namespace: parent.Namespace,
			Labels:    map[string]string{managedBy: operator},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyOnFailure,
			Containers: []corev1.Container{{
				Name:    "hello",
				Image:   "busybox",
				Command: []string{"echo", fmt.Sprintf("Hello, %s!", who)},
			}},
		},
	}
	return pod, ctrl.SetControllerReference(parent, pod, r.scheme)
}

// remove deletes this very Pod, not one of the same name that the cache does not know of yet.
func (r *reconciler) remove(ctx context.Context, pod *corev1.Pod) error {
	if !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	this := client.Preconditions{UID: &pod.UID}
	return client.IgnoreNotFound(r.Delete(ctx, pod, this))
}

// report writes the status where it says something new.
func (r *reconciler) report(ctx context.Context, parent *HelloWorld, status HelloWorldStatus) (ctrl.Result, error) {
	if parent.Status == status {
		return ctrl.Result{}, nil
	}
	parent.Status = status
	err := r.Status().Update(ctx, parent)
	if apierrors.IsConflict(err) {
		// The cache is behind: no error, and nothing to log.
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func named(pods []corev1.Pod, name string) *corev1.Pod {
	for i := range pods {
		if pods[i].Name == name {
			return &pods[i]
		}
	}
	return nil
}
