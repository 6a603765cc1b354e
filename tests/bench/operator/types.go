package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// HelloWorld is the tutorial's parent.
type HelloWorld struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HelloWorldSpec   `json:"spec,omitempty"`
	Status HelloWorldStatus `json:"status,omitempty"`
}

// HelloWorldSpec says who is greeted.
type HelloWorldSpec struct {
	Who *string `json:"who,omitempty"`
}

// HelloWorldStatus says what there is.
type HelloWorldStatus struct {
	Pods               int   `json:"pods"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// HelloWorldList is what a list answers.
type HelloWorldList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HelloWorld `json:"items"`
}

var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion, &HelloWorld{}, &HelloWorldList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}

// DeepCopyObject is what controller-gen would write.
func (in *HelloWorld) DeepCopyObject() runtime.Object {
	return in.deepCopy()
}

func (in *HelloWorld) deepCopy() *HelloWorld {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.Who != nil {
		who := *in.Spec.Who
		out.Spec.Who = &who
	}
	return &out
}

// DeepCopyObject is what controller-gen would write.
func (in *HelloWorldList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items != nil {
		out.Items = make([]HelloWorld, len(in.Items))
		for i := range in.Items {
			out.Items[i] = *in.Items[i].deepCopy()
		}
	}
	return &out
}
