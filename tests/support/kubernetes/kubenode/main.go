// Command kubenode is what a real node of the end-to-end test runs beside
// containerd: the kubelet, and the scheduler that gives it pods. The first
// argument picks one of them. The control plane is ../kubelite; this is a
// module of its own because building it takes as long again, and only `make
// e2e` needs it.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = "usage: kubenode kubelet|kube-scheduler [flags]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	// each command reads os.Args by itself, as if it were a program of its own
	os.Args = os.Args[1:]
	switch os.Args[0] {
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
}
