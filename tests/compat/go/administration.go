package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

func createTopic(ctx context.Context, d *driver, asked *request) (any, error) {
	_, err := d.admin.CreateTopic(ctx, int32(asked.Partitions), -1, asked.Configs, asked.Topic)
	return nil, err
}

func createPartitions(ctx context.Context, d *driver, asked *request) (any, error) {
	answers, err := d.admin.UpdatePartitions(ctx, asked.Partitions, asked.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func deleteTopic(ctx context.Context, d *driver, asked *request) (any, error) {
	_, err := d.admin.DeleteTopic(ctx, asked.Topic)
	return nil, err
}

func topics(ctx context.Context, d *driver, _ *request) (any, error) {
	listed, err := d.admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	partitions := map[string]int{}
	for name, topic := range listed {
		partitions[name] = len(topic.Partitions)
	}
	return partitions, nil
}

func topicConfigs(ctx context.Context, d *driver, asked *request) (any, error) {
	described, err := d.admin.DescribeTopicConfigs(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := described.On(asked.Topic, nil)
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for _, config := range resource.Configs {
		configs[config.Key] = config.Value
	}
	return configs, resource.Err
}

func alterTopicConfig(ctx context.Context, d *driver, asked *request) (any, error) {
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: asked.Name, Value: &asked.Value}
	answers, err := d.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, asked.Topic)
	if err != nil {
		return nil, err
	}
	answer, err := answers.On(asked.Topic, nil)
	if err != nil {
		return nil, err
	}
	return nil, answer.Err
}

func offsetsForTime(ctx context.Context, d *driver, asked *request) (any, error) {
	listed, err := d.admin.ListOffsetsAfterMilli(ctx, asked.TimestampMs, asked.Topic)
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for index, listed := range listed[asked.Topic] {
		offsets[index] = listed.Offset
	}
	return offsets, listed.Error()
}

func committed(ctx context.Context, d *driver, asked *request) (any, error) {
	answers, err := d.admin.FetchOffsets(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for index, answer := range answers[asked.Topic] {
		offsets[index] = answer.At
	}
	return offsets, nil
}
