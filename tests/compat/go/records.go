package main

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func unhex(text *string) []byte {
	if text == nil {
		return nil
	}
	decoded, err := hex.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	if decoded == nil {
		decoded = []byte{}
	}
	return decoded
}

func tohex(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := hex.EncodeToString(bytes)
	return &text
}

func toRecord(topic string, m message) *kgo.Record {
	record := &kgo.Record{Topic: topic, Key: unhex(m.Key), Value: unhex(m.Value)}
	for _, header := range m.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: *header[0], Value: unhex(header[1])})
	}
	if m.TimestampMs != nil {
		record.Timestamp = time.UnixMilli(*m.TimestampMs)
	}
	if m.Partition != nil {
		record.Partition = *m.Partition
	}
	return record
}

func describe(record *kgo.Record) map[string]any {
	headers := [][]*string{}
	for _, header := range record.Headers {
		headers = append(headers, []*string{&header.Key, tohex(header.Value)})
	}
	return map[string]any{
		"topic": record.Topic, "partition": record.Partition, "offset": record.Offset,
		"timestamp_ms": record.Timestamp.UnixMilli(), "headers": headers,
		"key": tohex(record.Key), "value": tohex(record.Value),
	}
}

func produce(ctx context.Context, d *driver, asked *request) (any, error) {
	options := append(connect(asked.Security),
		kgo.RequiredAcks(acks[asked.Acks]),
		kgo.ProducerBatchCompression(codecs[asked.Compression]), kgo.ProducerLinger(50*time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	)
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if len(asked.Messages) > 0 && asked.Messages[0].Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return nil, err
	}
	records := []*kgo.Record{}
	for _, m := range asked.Messages {
		records = append(records, toRecord(asked.Topic, m))
	}
	sent := client.ProduceSync(ctx, records...)
	if err := sent.FirstErr(); err != nil {
		return nil, err
	}
	places := [][]int64{}
	for _, record := range records {
		places = append(places, []int64{int64(record.Partition), record.Offset})
	}
	return places, nil
}

func read(ctx context.Context, d *driver, asked *request) (any, error) {
	options := append(connect(asked.Security), kgo.ConsumeTopics(asked.Topic))
	if asked.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	records := []map[string]any{}
	for len(records) < asked.Count && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) { records = append(records, describe(record)) })
	}
	return records, nil
}
