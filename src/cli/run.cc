// perigee run [DIR]: chat in the terminal, or one prompt for scripts.
#include <histedit.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/model_source.h"
#include "text/parser.h"
#include "text/render.h"

namespace perigee::cli {
namespace {

struct RunFlags {
  std::string prompt;
  std::string system;
  std::string effort;
  bool no_thinking = false;
  bool json = false;
  std::int64_t max_tokens = 0;
  double temperature = -1;  // < 0: the dialect's
  double top_p = -1;
  double min_p = 0;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
};

std::atomic<bool> interrupted{false};

// Ctrl-C stops the answer, not the program.
void on_interrupt(int /*signal*/) {
  interrupted = true;
}

class EventQueue {
 public:
  void push(TokenEvent&& event) {
    // Notified under the lock: whoever has taken the last event may destroy the queue at once.
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    ready_.notify_one();
  }
  // Nothing within 50 ms: the caller looks whether it was interrupted.
  bool pop(TokenEvent& event) {
    std::unique_lock lock(mutex_);
    if (!ready_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !events_.empty(); })) return false;
    event = std::move(events_.front());
    events_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<TokenEvent> events_;
};

struct Turn {
  Answer answer;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t tokens = 0;
  double first_token_seconds = 0;
  double seconds = 0;
  bool stopped = false;  // by Ctrl-C
};

class Chat {
 public:
  Chat(LoadedModel& model, const RunFlags& flags) : model_(model), flags_(flags), messages_(Json::array()) { reset(); }

  void reset() {
    messages_ = Json::array();
    if (!flags_.system.empty()) messages_.push_back({{"role", "system"}, {"content", flags_.system}});
  }

  // One exchange. Text goes to stdout as it comes when `stream`; reasoning is dimmed on a terminal.
  Result<Turn> say(const std::string& text, bool stream) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    auto turn = answer(stream);
    if (!turn.ok()) {
      messages_.erase(messages_.size() - 1);
      return turn;
    }
    Json reply = {{"role", "assistant"}, {"content", turn->answer.content.value_or("")}};
    if (turn->answer.reasoning.has_value()) reply["reasoning_content"] = *turn->answer.reasoning;
    messages_.push_back(std::move(reply));
    return turn;
  }

 private:
  Result<GenerationRequest> request(const Rendered& rendered) const {
    GenerationRequest ask;
    ask.prompt = expand_images(rendered);
    ask.system_tokens = rendered.system_tokens;
    ask.sampling.temperature =
        static_cast<float>(flags_.temperature < 0 ? model_.dialect->temperature : flags_.temperature);
    ask.sampling.top_p = static_cast<float>(flags_.top_p < 0 ? model_.dialect->top_p : flags_.top_p);
    ask.sampling.min_p = static_cast<float>(flags_.min_p);
    ask.sampling.top_k = flags_.top_k;
    ask.sampling.seed = flags_.seed;
    ask.stop_ids = stop_ids(*model_.tokenizer);
    ask.max_tokens = flags_.max_tokens;
    // A generated model rarely writes its end token.
    if (ask.max_tokens == 0 && model_.generated) ask.max_tokens = 48;
    return ask;
  }

  Result<Turn> answer(bool stream) {
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const RenderRequest render_request{.messages = &messages_,
                                       .thinking = !flags_.no_thinking,
                                       .effort = flags_.effort,
                                       .add_generation_prompt = true,
                                       .images = {},
                                       .tenant = {}};
    PERIGEE_ASSIGN_OR_RETURN(const Rendered rendered, render(*model_.dialect, *model_.tokenizer, render_request));
    PERIGEE_ASSIGN_OR_RETURN(GenerationRequest ask, request(rendered));
    ParserOptions options;
    options.start = rendered.start;
    options.stop = flags_.stop;
    const auto parser = make_answer_parser(*model_.dialect, *model_.tokenizer, options);

    EventQueue queue;
    interrupted = false;
    PERIGEE_ASSIGN_OR_RETURN(const RequestHandle handle,
                             model_.engine->submit(std::move(ask), [&queue](TokenEvent&& event) {
                               queue.push(std::move(event));
                               return true;
                             }));
    Turn turn;
    turn.prompt_tokens = rendered.prompt_tokens;
    AnswerFold fold;
    Printer printer(stream);
    std::vector<AnswerEvent> events;
    bool cancelled = false;
    while (true) {
      if ((interrupted || parser->done()) && !cancelled) {
        cancelled = true;
        turn.stopped = interrupted;
        model_.engine->cancel(handle);
      }
      TokenEvent event;
      if (!queue.pop(event)) continue;
      if (event.finish == FinishReason::kError) return event.error;
      if (event.id >= 0 && !cancelled) {
        if (turn.tokens++ == 0) turn.first_token_seconds = elapsed();
        parser->push(event.id, events);
      }
      if (event.finish != FinishReason::kNone) parser->finish(event.finish != FinishReason::kStop, events);
      for (const AnswerEvent& part : events) {
        fold.add(part);
        printer.print(part);
      }
      events.clear();
      if (event.finish != FinishReason::kNone) break;
    }
    turn.seconds = elapsed();
    turn.cached_tokens = model_.engine->cache_report(handle).restored_tokens;
    turn.answer = fold.take();
    return turn;
  }

  // Streams to stdout; reasoning dimmed where stdout is a terminal.
  class Printer {
   public:
    explicit Printer(bool on) : on_(on), colour_(::isatty(STDOUT_FILENO) == 1) {}
    ~Printer() {
      if (!on_) return;
      if (dim_ && colour_) std::fputs("\x1b[0m", stdout);
      std::fputc('\n', stdout);
      std::fflush(stdout);
    }
    Printer(const Printer&) = delete;
    Printer& operator=(const Printer&) = delete;

    void print(const AnswerEvent& part) {
      const bool reasoning = part.kind == AnswerEvent::Kind::kReasoning;
      if (!on_ || part.text.empty() || (!reasoning && part.kind != AnswerEvent::Kind::kContent)) return;
      if (reasoning != dim_) {
        if (colour_) std::fputs(reasoning ? "\x1b[2m" : "\x1b[0m", stdout);
        if (!reasoning) std::fputs("\n\n", stdout);
        dim_ = reasoning;
      }
      std::fwrite(part.text.data(), 1, part.text.size(), stdout);
      std::fflush(stdout);
    }

   private:
    bool on_;
    bool colour_;
    bool dim_ = false;
  };

  LoadedModel& model_;
  const RunFlags& flags_;
  Json messages_;
};

void print_json(const std::string& model, const Turn& turn) {
  Json document = {{"model", model},
                   {"content", turn.answer.content.has_value() ? Json(*turn.answer.content) : Json()},
                   {"reasoning", turn.answer.reasoning.has_value() ? Json(*turn.answer.reasoning) : Json()},
                   {"finish_reason", turn.answer.finish == AnswerFinish::kLength ? "length" : "stop"},
                   {"prompt_tokens", turn.prompt_tokens},
                   {"cached_tokens", turn.cached_tokens},
                   {"completion_tokens", turn.tokens},
                   {"first_token_seconds", turn.first_token_seconds},
                   {"seconds", turn.seconds}};
  std::puts(document.dump().c_str());
}

void print_help() {
  std::puts(
      "/help   this text\n"
      "/reset  forget the conversation\n"
      "/quit   leave (also Ctrl-D)\n"
      "Ctrl-C  stop the answer");
}

// What the line editor shows before each line.
char* prompt_text(EditLine* /*editor*/) {
  static char text[] = "> ";
  return text;
}

Status interactive(LoadedModel& model, const RunFlags& flags) {
  Chat chat(model, flags);
  std::signal(SIGINT, on_interrupt);
  EditLine* editor = ::el_init("perigee", stdin, stdout, stderr);
  History* history = ::history_init();
  HistEvent history_event;
  ::history(history, &history_event, H_SETSIZE, 500);
  ::el_set(editor, EL_PROMPT, prompt_text);
  ::el_set(editor, EL_HIST, ::history, history);
  ::el_set(editor, EL_SIGNAL, 0);
  // A Ctrl-D typed while an answer runs arrives here as NUL, once the editor has changed the terminal's mode.
  ::el_set(editor, EL_BIND, "^@", "em-delete-or-list", nullptr);
  std::puts("Type a message, or /help.");
  while (true) {
    int count = 0;
    interrupted = false;  // a Ctrl-C that stopped the last answer must not swallow a Ctrl-D now
    const char* read = ::el_gets(editor, &count);
    if (read == nullptr || count <= 0) {
      if (!interrupted) break;  // else Ctrl-C at the prompt cleared the line
      std::fputc('\n', stdout);
      continue;
    }
    std::string line(read, static_cast<std::size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (line.empty()) continue;
    ::history(history, &history_event, H_ENTER, line.c_str());
    if (line == "/quit" || line == "/exit") break;
    if (line == "/help") {
      print_help();
    } else if (line == "/reset") {
      chat.reset();
    } else if (line.front() == '/') {
      std::printf("unknown command %s; /help lists them\n", line.c_str());
    } else if (const auto turn = chat.say(line, true); !turn.ok()) {
      std::fprintf(stderr, "perigee: %s\n", turn.status().message().c_str());
    } else {
      std::fprintf(
          stderr, "[%lld tokens, %.2f s to the first, %.1f tokens/s, %lld of %lld prompt tokens cached%s]\n",
          static_cast<long long>(turn->tokens), turn->first_token_seconds,
          turn->tokens > 1 ? static_cast<double>(turn->tokens - 1) / (turn->seconds - turn->first_token_seconds) : 0.0,
          static_cast<long long>(turn->cached_tokens), static_cast<long long>(turn->prompt_tokens),
          turn->stopped ? ", stopped" : "");
    }
  }
  ::history_end(history);
  ::el_end(editor);
  return {};
}

Status run(const EngineFlags& engine, const RunFlags& flags) {
  const bool has_prompt = !flags.prompt.empty() || ::isatty(STDIN_FILENO) != 1;
  PERIGEE_ASSIGN_OR_RETURN(LoadedModel model, load_model(engine, flags.json || has_prompt));
  if (model.generated) {
    std::fprintf(stderr, "perigee: no model folder was given; a generated model answers, and its text means nothing\n");
  }
  if (!has_prompt) return interactive(model, flags);
  std::string prompt = flags.prompt;
  if (prompt.empty()) prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (prompt.empty()) return invalid_argument("prompt: expected -p TEXT or text on standard input");
  std::signal(SIGINT, on_interrupt);
  Chat chat(model, flags);
  PERIGEE_ASSIGN_OR_RETURN(const Turn turn, chat.say(prompt, !flags.json));
  if (flags.json) print_json(model.name, turn);
  return turn.stopped ? make_error(StatusCode::kCancelled, "interrupted") : Status();
}

}  // namespace

void register_run(const CommandGroups& groups, int& exit_code) {
  auto engine = std::make_shared<EngineFlags>();
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = groups.root->add_subcommand("run", "Chat with a model in the terminal");
  add_engine_flags(*command, *engine);
  command->add_option("-p,--prompt", flags->prompt, "Answer this and end (also from standard input)");
  command->add_option("--system", flags->system, "System message");
  command->add_option("--effort", flags->effort, "Thinking effort: low, high or max");
  command->add_flag("--no-thinking", flags->no_thinking, "Answer at once");
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer")->check(CLI::NonNegativeNumber);
  command->add_option("--temperature", flags->temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-p", flags->top_p)->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", flags->top_k)->check(CLI::NonNegativeNumber);
  command->add_option("--min-p", flags->min_p)->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", flags->seed, "Same seed, same answer");
  command->add_option("--stop", flags->stop, "Text that ends the answer");
  command->callback([engine, flags, &exit_code] {
    const Status status = run(*engine, *flags);
    if (!status.ok()) std::fprintf(stderr, "perigee: %s\n", status.message().c_str());
    exit_code = exit_code_of(status);
  });
}

}  // namespace perigee::cli
