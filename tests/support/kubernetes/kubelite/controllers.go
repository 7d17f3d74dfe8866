package main

// The controllers of kube-controller-manager that a Deployment, a Service, a
// PodDisruptionBudget, a namespace or an aggregated role needs, and no others:
// the whole program brings volume plugins and cloud clients, a quarter of the
// time that building all of this takes.

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

const (
	workers = 5
	// how soon a kind that is new (a CRD) gets its garbage collected
	discoverEvery         = 5 * time.Second
	maxEndpointsPerSlice  = 100
	endpointsBatchPeriod  = 0
	namespaceResyncPeriod = 5 * time.Minute
)

type runner func(context.Context)

// surroundings is what every controller is made from.
type surroundings struct {
	config   *rest.Config
	client   kubernetes.Interface
	metadata metadata.Interface
	objects  informers.SharedInformerFactory
	mapper   *restmapper.DeferredDiscoveryRESTMapper
}

func newControllersCommand() *cobra.Command {
	var kubeconfig, rootCAFile string
	command := &cobra.Command{
		Use:           "controllers",
		SilenceUsage:  true,
		SilenceErrors: false,
		RunE: func(*cobra.Command, []string) error {
			ctx := genericapiserver.SetupSignalContext()
			return runControllers(ctx, kubeconfig, rootCAFile)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&rootCAFile, "root-ca-file", "", "published to every namespace")
	return command
}

func runControllers(ctx context.Context, kubeconfig, rootCAFile string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000 // one machine, one user: nobody to be considerate of
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	around := &surroundings{
		config:   config,
		client:   client,
		metadata: metadataClient,
		objects:  informers.NewSharedInformerFactory(client, 12*time.Hour),
		mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}
	started := make(chan struct{})
	metadataInformers := metadatainformer.NewSharedInformerFactory(metadataClient, 12*time.Hour)

	makers := []func(context.Context, *surroundings) (runner, error){
		newDeployments, newReplicaSets, newNamespaces, newServiceAccounts,
		newEndpointSlices, newDisruptions, newRoleAggregation,
	}
	var runners []runner
	for _, newController := range makers {
		run, err := newController(ctx, around)
		if err != nil {
			return err
		}
		runners = append(runners, run)
	}
	collect, err := newGarbageCollection(ctx, around, metadataInformers, started)
	if err != nil {
		return err
	}
	publish, err := newRootCAPublisher(around, rootCAFile)
	if err != nil {
		return err
	}
	for _, run := range append(runners, collect, publish) {
		go run(ctx)
	}
	around.objects.Start(ctx.Done())
	metadataInformers.Start(ctx.Done())
	close(started)
	<-ctx.Done()
	return nil
}

func newDeployments(ctx context.Context, s *surroundings) (runner, error) {
	c, err := deployment.NewDeploymentController(ctx, s.objects.Apps().V1().Deployments(),
		s.objects.Apps().V1().ReplicaSets(), s.objects.Core().V1().Pods(), s.client)
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}

func newReplicaSets(ctx context.Context, s *surroundings) (runner, error) {
	c := replicaset.NewReplicaSetController(ctx, s.objects.Apps().V1().ReplicaSets(),
		s.objects.Core().V1().Pods(), s.client, replicaset.BurstReplicas)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func newNamespaces(ctx context.Context, s *surroundings) (runner, error) {
	c := namespace.NewNamespaceController(ctx, s.client, s.metadata,
		s.client.Discovery().ServerPreferredNamespacedResources,
		s.objects.Core().V1().Namespaces(), namespaceResyncPeriod, v1.FinalizerKubernetes)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func newServiceAccounts(ctx context.Context, s *surroundings) (runner, error) {
	c, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx),
		s.objects.Core().V1().ServiceAccounts(), s.objects.Core().V1().Namespaces(), s.client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}

func newEndpointSlices(ctx context.Context, s *surroundings) (runner, error) {
	c := endpointslice.NewController(ctx, s.objects.Core().V1().Pods(), s.objects.Core().V1().Services(),
		s.objects.Core().V1().Nodes(), s.objects.Discovery().V1().EndpointSlices(),
		maxEndpointsPerSlice, s.client, endpointsBatchPeriod)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func newDisruptions(ctx context.Context, s *surroundings) (runner, error) {
	kinds := scale.NewDiscoveryScaleKindResolver(s.client.Discovery())
	scales, err := scale.NewForConfig(s.config, s.mapper, dynamic.LegacyAPIPathResolverFunc, kinds)
	if err != nil {
		return nil, err
	}
	c := disruption.NewDisruptionController(ctx, s.objects.Core().V1().Pods(),
		s.objects.Policy().V1().PodDisruptionBudgets(), s.objects.Core().V1().ReplicationControllers(),
		s.objects.Apps().V1().ReplicaSets(), s.objects.Apps().V1().Deployments(),
		s.objects.Apps().V1().StatefulSets(), s.client, s.mapper, scales, s.client.Discovery())
	return c.Run, nil
}

func newRoleAggregation(_ context.Context, s *surroundings) (runner, error) {
	c := clusterroleaggregation.NewClusterRoleAggregation(s.objects.Rbac().V1().ClusterRoles(), s.client.RbacV1())
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func newGarbageCollection(
	ctx context.Context, s *surroundings, metadataInformers metadatainformer.SharedInformerFactory,
	started <-chan struct{},
) (runner, error) {
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, s.metadata, s.mapper,
		map[schema.GroupResource]struct{}{{Group: "", Resource: "events"}: {}},
		informerfactory.NewInformerFactory(s.objects, metadataInformers), started)
	c, err := garbagecollector.NewComposedGarbageCollector(ctx, s.client, s.metadata, s.mapper, graph)
	if err != nil {
		return nil, err
	}
	var finder discovery.ServerResourcesInterface = s.client.Discovery()
	return func(ctx context.Context) {
		go wait.Until(s.mapper.Reset, discoverEvery, ctx.Done())
		go c.Sync(ctx, finder, discoverEvery)
		c.Run(ctx, workers, discoverEvery)
	}, nil
}

func newRootCAPublisher(s *surroundings, rootCAFile string) (runner, error) {
	rootCA, err := os.ReadFile(rootCAFile)
	if err != nil {
		return nil, err
	}
	c, err := rootcacertpublisher.NewPublisher(s.objects.Core().V1().ConfigMaps(),
		s.objects.Core().V1().Namespaces(), s.client, rootCA)
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}
