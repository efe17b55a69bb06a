package main

import (
	"os"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// Where the controller manager makes hostpath volumes: for root alone, though pods run as other users.
const volumes = "/tmp/hostpath_pv"

// openVolumes gives each new volume to everybody, as provisioners of real clusters do. Where there is no such folder
// yet no pod will run on this machine.
func openVolumes() {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		klog.Fatalf("cannot watch for new volumes: %v", err)
	}
	if err := watcher.Add(volumes); err != nil {
		return
	}
	for event := range watcher.Events {
		if event.Has(fsnotify.Create) {
			if err := os.Chmod(event.Name, 0o777); err != nil {
				klog.Errorf("volume: %v", err)
			}
		}
	}
}
