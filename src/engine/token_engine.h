// The engine's loop: one thread that starts requests, runs steps and hands out tokens; a second one that matches and
// reads the prefix cache, so that a disk never holds up a step.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/threads.h"
#include "cache/pages.h"
#include "cache/prefix_cache.h"
#include "engine/cache_link.h"
#include "engine/gap_meter.h"
#include "engine/open_engine.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "model/step_cost.h"

namespace perigee {

class TokenEngine : public Engine {
 public:
  static Result<std::unique_ptr<TokenEngine>> create(const Checkpoint& checkpoint, const EngineOptions& options);
  ~TokenEngine() override;

  Result<RequestHandle> submit(GenerationRequest request, EventSink sink) override;
  void cancel(RequestHandle handle) override;
  CacheReport cache_report(RequestHandle handle) const override;
  EngineLimits limits() const override;
  EngineStats stats() const override;
  Json debug_cache(std::size_t limit) const override;
  void drain(double seconds) override;

 private:
  using RequestPtr = std::shared_ptr<Request>;

  // A branch in a step, and how many of its tokens are computed.
  struct Work {
    Request* request = nullptr;
    Branch* branch = nullptr;
    std::int64_t tokens = 0;
    bool decode = false;
  };

  TokenEngine(const Checkpoint& checkpoint, const EngineOptions& options, const EngineMemory& memory);

  void run();
  void run_restorer();
  bool has_work() const;
  void stop_cancelled();
  void start_waiting();
  void collect_restored();

  std::vector<Work> choose_work();
  std::int64_t tokens_to_stop(const Request& request, const Branch& branch) const;
  bool make_room(const Request& needy, std::int64_t tokens);
  void preempt(Request& request);
  void fail_stuck();
  void run_step(std::vector<Work>& work);
  void record_cost(std::span<const Segment> segments, bool prefill);
  void after_forward(const Work& work, std::span<const float> final_row, std::span<const float> logits);
  void sample_ready();  // branches whose logits come from a restored final row
  void sample(Request& request, Branch& branch, std::span<const float> logits);
  void start_generation(Request& request, std::span<const float> logits);
  void finish_branch(Request& request, Branch& branch, TokenEvent event);
  void fail_request(Request& request, const Status& status);
  void end_finished();
  CacheRoot root_of(const Request& request) const;
  Status check(const GenerationRequest& request) const;
  void publish_stats();

  EngineOptions options_;
  EngineMemory memory_;
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PagePool> pages_;
  std::unique_ptr<PageAllocator> allocator_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<CacheLink> link_;
  std::string model_digest_;
  std::string numerics_id_;
  StepCost cost_;

  // The engine thread's own.
  std::vector<RequestPtr> requests_;  // all that are not finished
  StepBudget budget_;
  GapMeter gaps_;
  std::map<std::string, std::int64_t> served_;  // tokens computed by tenant
  double audit_credit_ = 0;
  EngineStats counters_;
  // Grow with every token or step; publish_stats() gives them their names.
  struct Sums {
    double sample_seconds = 0;
    double grammar_mask_seconds = 0;
    double prefill_flops = 0;
    double decode_read_bytes = 0;
  };
  Sums sums_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<RequestPtr> submitted_;
  std::map<RequestHandle, RequestPtr> live_;  // submitted and not finished
  std::map<RequestHandle, CacheReport> reports_;
  EngineStats published_;
  RequestHandle next_handle_ = 1;
  bool draining_ = false;
  bool stopping_ = false;
  bool wake_flag_ = false;  // something changed since the loop last looked

  std::mutex restore_mutex_;
  std::condition_variable restore_wake_;
  std::deque<std::pair<RequestPtr, bool>> to_restore_;  // with: recompute and compare
  bool restorer_stopping_ = false;

  std::thread restorer_;
  std::thread thread_;
};

}  // namespace perigee
