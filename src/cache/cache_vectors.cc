#include "cache/cache_vectors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "cache/prefix_cache.h"
#include "cache/toy_model.h"

namespace perigee {
namespace {

constexpr TokenId kPad = 163605;
constexpr std::int64_t kTraceBlock = 512;
constexpr std::int64_t kPagesPerBlock = kBlockTokens / kPageTokens;

Sha256Digest digest_from_hex(const std::string& hex) {
  Sha256Digest digest{};
  for (std::size_t i = 0; i < digest.size() && 2 * i + 1 < hex.size(); ++i) {
    digest[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return digest;
}

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<ImageSpan> images;

  void append_image(const Sha256Digest& digest, std::int64_t count, TokenId pad) {
    images.push_back({.begin = static_cast<std::int64_t>(tokens.size()), .length = count, .digest = digest});
    tokens.insert(tokens.end(), static_cast<std::size_t>(count), pad);
  }
  void append_range(const Json& part) {
    const std::int64_t step = part.size() > 2 ? part.at(2).get<std::int64_t>() : 1;
    std::int64_t id = part.at(0);
    for (std::int64_t i = part.at(1).get<std::int64_t>(); i > 0; --i, id += step)
      tokens.push_back(static_cast<TokenId>(id));
  }
  void append_head(const Sequence& other, std::size_t count) {
    const auto shift = static_cast<std::int64_t>(tokens.size());
    tokens.insert(tokens.end(), other.tokens.begin(), other.tokens.begin() + static_cast<std::ptrdiff_t>(count));
    for (ImageSpan span : other.images) {
      if (span.begin >= static_cast<std::int64_t>(count)) break;
      span.begin += shift;
      images.push_back(span);
    }
  }
};

CacheRoot read_root(const Json& op) {
  CacheRoot root{.model_digest = "m1", .numerics_id = "n1", .tenant = "", .cache_salt = ""};
  if (!op.contains("root")) return root;
  const Json& fields = op.at("root");
  root.model_digest = fields.value("model", root.model_digest);
  root.numerics_id = fields.value("numerics", root.numerics_id);
  root.tenant = fields.value("tenant", root.tenant);
  root.cache_salt = fields.value("cache_salt", root.cache_salt);
  return root;
}

// One case of sequences.json.
class SequenceRunner {
 public:
  SequenceRunner(const Json& test, std::string scratch, CacheVectorReport& report)
      : test_(test), scratch_(std::move(scratch)), report_(report), id_(test.at("id")) {
    const Json* budget = test.contains("budget") ? &test.at("budget") : nullptr;
    const bool tiers = test.contains("tiers");
    if (tiers) budget = &test.at("tiers").at("ram");
    // In units of a page, so that a partial block costs its pages.
    const std::int64_t block = budget ? budget->at("block").get<std::int64_t>() : 1;
    const std::int64_t state = budget ? budget->at("state").get<std::int64_t>() : 4;
    allocator_.emplace(block, kPagesPerBlock * state);
    options_.ram_bytes = budget ? kPagesPerBlock * budget->at("total").get<std::int64_t>() : 0;
    options_.snapshot_interval = test.value("interval", 0);
    bool disk = tiers;
    for (const Json& op : test.at("ops")) disk = disk || op.at("op") == "restart" || op.at("op") == "flush";
    if (disk) options_.disk = {.directory = scratch_ + "/" + id_, .write_bytes_per_day = 0};
  }

  Status run() {
    PERIGEE_RETURN_IF_ERROR(open());
    for (const Json& op : test_.at("ops")) {
      const std::string& kind = op.at("op").get_ref<const std::string&>();
      if (kind == "request") {
        begin(op);
        answer(op, op);
      } else if (kind == "begin") {
        begin(op);
      } else if (kind == "finish") {
        answer(*begun_.at(op.at("id")), op);
      } else if (kind == "restart") {
        PERIGEE_RETURN_IF_ERROR(open());
      } else if (kind == "flush") {
        cache_->flush();
      } else if (kind == "corrupt") {
        PERIGEE_RETURN_IF_ERROR(corrupt(op));
      } else {
        return invalid_argument("sequence {}: unknown op {}", id_, kind);
      }
    }
    return {};
  }

 private:
  Status open() {
    running_.clear();
    cache_ = nullptr;
    PERIGEE_ASSIGN_OR_RETURN(cache_, PrefixCache::open(options_, *allocator_));
    return cache_->disk_status();
  }

  Sequence read_tokens(const Json& parts) const {
    Sequence sequence;
    for (const Json& part : parts) {
      if (part.is_string()) {
        const std::string text = part.get<std::string>().substr(1);
        const std::size_t colon = text.find(':');
        const Sequence& other = histories_.at(text.substr(0, colon));
        const std::size_t count = colon == std::string::npos ? other.tokens.size() : std::stoul(text.substr(colon + 1));
        sequence.append_head(other, std::min(count, other.tokens.size()));
      } else if (part.is_object()) {
        const Json& image = test_.at("images").at(part.at("image").get<std::string>());
        Sha256 hash;
        hash.update(fmt::format("{}\n{}\n{}\n{}\n{}", image.at("preprocessor").get<std::string>(),
                                image.at("mode").get<std::string>(), image.at("w").get<int>(), image.at("h").get<int>(),
                                image.at("pixels").get<std::string>()));
        sequence.append_image(hash.finish(), image.at("n"), kPad);
      } else {
        sequence.append_range(part);
      }
    }
    return sequence;
  }

  void begin(const Json& op) {
    const std::string id = op.at("id");
    Sequence prompt = read_tokens(op.at("tokens"));
    histories_[id] = prompt;
    begun_[id] = &op;
    roots_[id] = read_root(op);
    auto request = std::make_unique<ToyRequest>(*cache_, *allocator_, roots_[id], prompt.tokens, prompt.images,
                                                op.value("system_end", 0));
    ++report_.requests;
    request->prefill(op.value("cancel_at", -1));
    const CacheLookup& found = request->lookup();
    const Json& expect = op.at("expect");
    check(id, expect, "prompt", found.prompt_tokens);
    check(id, expect, "common", found.common_tokens);
    check(id, expect, "blocks", found.whole_blocks);
    check(id, expect, "restore", found.restored_tokens);
    check(id, expect, "recompute", found.prompt_tokens - found.restored_tokens);
    check(id, expect, "reason", std::string(to_string(found.reason)));
    if (!request->restored_right()) fail(id, "restored bytes", "those of a cold run", "others");
    reported_[id] = 0;
    if (op.at("op") == "begin") check_taken(id, expect, *request);
    running_[id] = std::move(request);
    if (op.at("op") == "begin") check(id, expect, "states", cache_->stats().states);
  }

  void answer(const Json& start, const Json& op) {
    const std::string id = op.at("id");
    ToyRequest& request = *running_.at(id);
    std::vector<Sequence> outputs;
    if (op.contains("output")) outputs.push_back(read_tokens(op.at("output")));
    for (const Json& output : op.value("outputs", Json::array())) outputs.push_back(read_tokens(output));
    const std::int64_t cancel = start.value("cancel_at", op.value("cancel_at", std::int64_t{-1}));
    const bool decodes = cancel < 0 || cancel > request.lookup().prompt_tokens;
    for (std::size_t i = 0; i < outputs.size() && decodes; ++i) {
      request.generate(static_cast<int>(i), outputs[i].tokens, cancel);
    }
    Sequence& history = histories_[id];
    const Sequence prompt = history;
    const bool nan = op.value("ends", "") == "nan";
    if (nan) {
      request.discard();
    } else {
      request.finish();
    }
    if (!outputs.empty())
      history.tokens.insert(history.tokens.end(), outputs[0].tokens.begin(), outputs[0].tokens.end());
    const Json& expect = op.at("expect");
    if (nan) {
      check(id, expect, "taken", std::vector<std::int64_t>());
    } else {
      check_taken(id, expect, request);
    }
    const std::vector<TokenId>& path = nan ? prompt.tokens : request.tokens();
    check(id, expect, "path", cache_->state_positions(roots_[id], path, prompt.images));
    check(id, expect, "states", cache_->stats().states);
    running_.erase(id);
  }

  void check_taken(const std::string& id, const Json& expect, const ToyRequest& request) {
    const auto& all = request.taken();
    check(id, expect, "taken",
          std::vector<std::int64_t>(all.begin() + static_cast<std::ptrdiff_t>(reported_[id]), all.end()));
    reported_[id] = all.size();
  }

  template <typename T>
  void check(const std::string& id, const Json& expect, const char* what, const T& found) {
    if (!expect.contains(what)) return;
    if (const T expected = expect.at(what).get<T>(); expected != found) {
      fail(id, what, fmt::format("{}", expected), fmt::format("{}", found));
    }
  }
  void fail(const std::string& id, const std::string& what, const std::string& expected, const std::string& found) {
    report_.failures.push_back(fmt::format("{}/{}: {}: expected {}, found {}", id_, id, what, expected, found));
  }

  // One bit of the stored bytes, wherever they are.
  Status corrupt(const Json& op) {
    cache_->flush();
    const std::string of = op.at("of");
    const Sequence& history = histories_.at(of);
    PERIGEE_ASSIGN_OR_RETURN(const ObjectLocation found, cache_->locate(roots_.at(of), history.tokens, history.images,
                                                                        op.at("position"), op.at("what") == "state"));
    if (const auto* payload = dynamic_cast<const ToyPayload*>(found.payload.get())) {
      const_cast<ToyPayload*>(payload)->mutable_words()[0] ^= 1;
    }
    if (!found.path.empty()) {
      std::fstream file(found.path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(8);
      std::uint32_t payload_at = 0;
      file.read(reinterpret_cast<char*>(&payload_at), sizeof payload_at);
      file.seekg(payload_at);
      const int byte = file.get();
      file.seekp(payload_at);
      file.put(static_cast<char>(byte ^ 1));
    }
    return {};
  }

  const Json& test_;
  std::string scratch_;
  CacheVectorReport& report_;
  std::string id_;
  PrefixCacheOptions options_;
  std::optional<ToyAllocator> allocator_;
  std::unique_ptr<PrefixCache> cache_;
  std::map<std::string, Sequence> histories_;  // prompt and first answer of each request
  std::map<std::string, CacheRoot> roots_;
  std::map<std::string, const Json*> begun_;
  std::map<std::string, std::unique_ptr<ToyRequest>> running_;
  std::map<std::string, std::size_t> reported_;
};

void run_key_vectors(const Json& keys, CacheVectorReport& report) {
  const TokenId pad = keys.at("pad_id");
  for (const Json& test : keys.at("cases")) {
    ++report.key_prompts;
    const std::size_t failures = report.failures.size();
    const std::string id = test.at("id");
    Sequence prompt;
    for (const Json& part : test.at("tokens")) {
      if (part.is_object()) {
        prompt.append_image(digest_from_hex(part.at("digest")), part.at("n"), pad);
      } else {
        prompt.append_range(part);
      }
    }
    const CacheKey root = root_key(read_root(test));
    if (to_hex(root) != test.at("root_key").get<std::string>())
      report.failures.push_back(fmt::format("keys/{}: root key differs", id));
    std::vector<std::string> found;
    for (const CacheKey& key : prompt_keys(root, prompt.tokens, prompt.images)) found.push_back(to_hex(key));
    if (found != test.at("block_keys").get<std::vector<std::string>>()) {
      report.failures.push_back(fmt::format("keys/{}: block keys: found {}", id, found));
    }
    report.key_prompts_passed += report.failures.size() == failures ? 1 : 0;
  }
}

}  // namespace

Status replay_trace(const std::string& path, TraceReplay& replay) {
  std::ifstream file(path);
  if (!file) return make_error(StatusCode::kNotFound, "{}: cannot open the trace", path);
  const bool limited = replay.ram_bytes > 0;
  // Sizes of spec cache.md 0 and 1.3: a page is a quarter of 7.9 MB.
  ToyAllocator allocator(limited ? 1'975'000 : 0, limited ? 449'000'000 : 0);
  PrefixCacheOptions options;
  options.ram_bytes = replay.ram_bytes;
  options.snapshot_interval = replay.interval;
  options.branch_states = replay.branch;
  PERIGEE_ASSIGN_OR_RETURN(const auto cache, PrefixCache::open(options, allocator));
  // No model runs here: one block and one state stand for all.
  const PayloadRef block = allocator.block(std::vector<std::uint64_t>(kBlockTokens));
  const PayloadRef state = allocator.state(0);
  std::string line;
  while (std::getline(file, line)) {
    PERIGEE_ASSIGN_OR_RETURN(const Json request, parse_json(line));
    const std::int64_t length = request.value("input_length", std::int64_t{0});
    replay.input_tokens += length;
    const std::int64_t count = length / kTraceBlock;
    const Json& ids = request.at("hash_ids");
    if (count == 0 || static_cast<std::int64_t>(ids.size()) < count) continue;
    std::vector<TokenId> prompt;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t first = ids.at(static_cast<std::size_t>(i)).get<std::int64_t>() * kTraceBlock;
      for (std::int64_t j = 0; j < kTraceBlock; ++j) prompt.push_back(static_cast<TokenId>(first + j));
    }
    const auto session = cache->begin({}, prompt, {}, 0);
    const CacheLookup& found = session->lookup();
    for (std::int64_t end = found.restored_tokens + kBlockTokens; end <= found.prompt_tokens; end += kBlockTokens) {
      session->add_block(0, end, block);
    }
    for (const std::int64_t position : session->snapshot_positions()) session->add_state(0, position, state);
    ++replay.requests;
    replay.prompt_tokens += found.prompt_tokens;
    replay.restored_tokens += found.restored_tokens;
    replay.full_hits += found.restored_tokens == found.prompt_tokens ? 1 : 0;
  }
  replay.states = cache->stats().states;
  return {};
}

Result<CacheVectorReport> run_cache_vectors(const std::string& directory, const std::string& traces,
                                            const std::string& scratch) {
  CacheVectorReport report;
  PERIGEE_ASSIGN_OR_RETURN(const Json sequences, read_json_file(directory + "/sequences.json"));
  PERIGEE_ASSIGN_OR_RETURN(const Json keys, read_json_file(directory + "/keys.json"));
  PERIGEE_ASSIGN_OR_RETURN(const Json replays, read_json_file(directory + "/traces.json"));
  // nlohmann throws on a missing or mistyped field; the folder may come from anywhere.
  try {
    for (const Json& test : sequences.at("cases")) {
      ++report.sequences;
      const std::size_t failures = report.failures.size();
      SequenceRunner runner(test, scratch, report);
      if (Status status = runner.run(); !status.ok()) {
        report.failures.push_back(fmt::format("{}: {}", test.at("id").get<std::string>(), status.message()));
      }
      report.sequences_passed += report.failures.size() == failures ? 1 : 0;
    }
    run_key_vectors(keys, report);
    for (const Json& test : replays.at("cases")) {
      TraceReplay replay{.trace = test.at("trace"), .interval = test.at("interval"), .branch = test.at("branch")};
      PERIGEE_RETURN_IF_ERROR(replay_trace(traces + "/" + replay.trace, replay));
      const std::size_t failures = report.failures.size();
      const auto expect = [&](const char* what, std::int64_t found) {
        const auto expected = test.at(what).get<std::int64_t>();
        if (expected == found) return;
        report.failures.push_back(fmt::format("{} (interval {}, branch {}): {}: expected {}, found {}", replay.trace,
                                              replay.interval, replay.branch, what, expected, found));
      };
      expect("requests", replay.requests);
      expect("prompt_tokens", replay.prompt_tokens);
      expect("restored_tokens", replay.restored_tokens);
      expect("full_hits", replay.full_hits);
      expect("states", replay.states);
      report.traces_passed += report.failures.size() == failures ? 1 : 0;
      report.traces.push_back(replay);
    }
  } catch (const std::exception& error) {
    return invalid_argument("{}: not in the layout of cache vectors: {}", directory, error.what());
  }
  return report;
}

}  // namespace perigee
