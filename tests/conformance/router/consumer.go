// What a router knows of its servers' caches, by llm-d-router's own parts: its subscriber, event pool, index, keys of
// requests and scorer, put together as its precise-prefix-cache producer puts them, and asked by lines of JSON.
//
// It is built inside a checkout of the router, whose go.mod pins what it needs. A line of stdin is a command:
//
//	{"pod": {"address": "127.0.0.1", "port": 8000, "rank": 0}}     a server appears
//	{"remove": {"address": "127.0.0.1", "port": 8000, "rank": 0}}  and goes
//	{"lookup": {"model": "m", "tokens": [1, 2], "cache_salt": "", "media": [{"hash": "a", "offset": 0, "length": 1}]}}
//
// and gets a line of stdout: {"total": 4, "pods": {"127.0.0.1:8000": {"blocks": 3, "tiers": {"gpu": 3}, "score": 3}}},
// {"ok": true} or {"error": "..."}. Blocks are those a pod has without a gap from the first on.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/llm-d/llm-d-router/pkg/kvcache"
	"github.com/llm-d/llm-d-router/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-router/pkg/kvevents"
	"github.com/llm-d/llm-d-router/pkg/kvevents/engineadapter"
)

type pod struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
	Rank    int    `json:"rank"`
}

// id is what the router knows the pod by, in either mode.
func (p pod) id() string { return fmt.Sprintf("%s:%d", p.Address, p.Port) }

type lookup struct {
	Model     string   `json:"model"`
	Tokens    []uint32 `json:"tokens"`
	CacheSalt string   `json:"cache_salt"`
	Media     []struct {
		Hash   string `json:"hash"`
		Offset int    `json:"offset"`
		Length int    `json:"length"`
	} `json:"media"`
}

type found struct {
	Blocks int            `json:"blocks"`
	Tiers  map[string]int `json:"tiers"`
	Score  float64        `json:"score"`
}

type command struct {
	Pod    *pod    `json:"pod"`
	Remove *pod    `json:"remove"`
	Lookup *lookup `json:"lookup"`
}

type router struct {
	events      *kvevents.Config
	indexer     *kvcache.Indexer
	scorer      kvcache.KVBlockScorer
	subscribers *kvevents.SubscriberManager
	blockSize   int
}

func newRouter(ctx context.Context, events *kvevents.Config, keys *kvblock.TokenProcessorConfig) (*router, error) {
	processor, err := kvblock.NewChunkedTokenDatabase(keys)
	if err != nil {
		return nil, err
	}
	config, err := kvcache.NewDefaultConfig()
	if err != nil {
		return nil, err
	}
	indexer, err := kvcache.NewKVCacheIndexer(ctx, config, processor)
	if err != nil {
		return nil, err
	}
	scorer, err := kvcache.NewKVBlockScorer(kvcache.DefaultKVBlockScorerConfig())
	if err != nil {
		return nil, err
	}
	adapter, err := engineadapter.NewAdapter(events.EngineType)
	if err != nil {
		return nil, err
	}
	pool := kvevents.NewPool(events, indexer.KVBlockIndex(), processor, adapter)
	pool.Start(ctx)
	r := &router{events, indexer, scorer, kvevents.NewSubscriberManager(pool), processor.BlockSize()}
	if events.ZMQEndpoint != "" {
		err = r.subscribers.EnsureSubscriber(ctx, "bound", "", events.ZMQEndpoint, "", events.TopicFilter, false)
	}
	return r, err
}

func (r *router) obey(ctx context.Context, c command) (any, error) {
	switch {
	case c.Pod != nil:
		return map[string]bool{"ok": true}, r.add(ctx, *c.Pod)
	case c.Remove != nil:
		r.subscribers.RemoveSubscriber(ctx, c.Remove.id())
		return map[string]bool{"ok": true}, r.indexer.KVBlockIndex().Clear(ctx, c.Remove.id())
	case c.Lookup != nil:
		return r.look(ctx, *c.Lookup)
	}
	return nil, errors.New("neither pod, remove nor lookup")
}

func (r *router) add(ctx context.Context, p pod) error {
	if !r.events.DiscoverPods {
		return errors.New("pods are not dialled in the bound mode")
	}
	address := func(port int) string { return fmt.Sprintf("tcp://%s:%d", p.Address, port+p.Rank) }
	replay := ""
	if port := r.events.PodDiscoveryConfig.EffectiveReplayPort(); port > 0 {
		replay = address(port)
	}
	live := address(r.events.PodDiscoveryConfig.SocketPort)
	return r.subscribers.EnsureSubscriber(ctx, p.id(), p.id(), live, replay, r.events.TopicFilter, true)
}

func (r *router) look(ctx context.Context, wanted lookup) (any, error) {
	keys, err := r.indexer.ComputeBlockKeysFromTokens(ctx, wanted.Tokens, wanted.Model, r.extra(wanted))
	if err != nil {
		return nil, err
	}
	pods := map[string]*found{}
	answer := map[string]any{"total": len(keys), "pods": pods}
	if len(keys) == 0 {
		return answer, nil
	}
	holders, err := r.indexer.KVBlockIndex().Lookup(ctx, keys, nil)
	if err != nil {
		return nil, err
	}
	scores, err := r.scorer.Score(ctx, keys, holders)
	if err != nil {
		return nil, err
	}
	for id, score := range scores {
		pods[id] = &found{Tiers: map[string]int{}, Score: score}
	}
	for position, key := range keys {
		for _, entry := range holders[key] {
			if pod := pods[entry.PodIdentifier]; pod != nil && pod.Blocks >= position {
				pod.Blocks = position + 1
				if pod.Tiers[entry.DeviceTier] == position {
					pod.Tiers[entry.DeviceTier]++
				}
			}
		}
	}
	return answer, nil
}

// extra is what media and a salt add to the keys of blocks. The router's producer does the same, the salt in a
// function of its own that cannot be called from here.
func (r *router) extra(wanted lookup) []*kvblock.BlockExtraFeatures {
	hashes, places := map[string][]string{}, map[string][]kvblock.PlaceholderRange{}
	for _, item := range wanted.Media {
		hashes["image"] = append(hashes["image"], item.Hash)
		places["image"] = append(places["image"], kvblock.PlaceholderRange{Offset: item.Offset, Length: item.Length})
	}
	features := kvblock.ComputeBlockExtraFeatures(hashes, places, r.blockSize, len(wanted.Tokens))
	if blocks := len(wanted.Tokens) / r.blockSize; wanted.CacheSalt != "" && blocks > 0 {
		if features == nil {
			features = make([]*kvblock.BlockExtraFeatures, blocks)
		}
		if features[0] == nil {
			features[0] = &kvblock.BlockExtraFeatures{}
		}
		features[0].MMHashes = append(features[0].MMHashes, kvblock.MMHash{Hash: wanted.CacheSalt})
	}
	return features
}

func main() {
	bind := flag.String("bind", "", "address to bind for all servers; without it each pod is dialled")
	socketPort := flag.Int("socket-port", 5557, "port that rank 0 of a pod publishes from")
	replayPort := flag.Int("replay-port", 0, "port that rank 0 of a pod replays from; 0 is no replay")
	blockSize := flag.Int("block-size", 16, "tokens in a block of the index")
	hashSeed := flag.String("hash-seed", "", "seed of the index's keys")
	flag.Parse()

	log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapcore.Level(-4))))
	ctx := log.IntoContext(context.Background(), log.Log)
	events := kvevents.DefaultConfig()
	if *bind != "" {
		events.ZMQEndpoint, events.DiscoverPods = *bind, false
	} else {
		events.PodDiscoveryConfig.SocketPort = *socketPort
		events.PodDiscoveryConfig.ReplaySocketPort = *replayPort
	}
	r, err := newRouter(ctx, events, &kvblock.TokenProcessorConfig{BlockSizeTokens: *blockSize, HashSeed: *hashSeed})
	if err != nil {
		panic(err)
	}

	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c command
		var answer any
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			answer, err = r.obey(ctx, c)
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			panic(err)
		}
	}
}
