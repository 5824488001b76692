#include "demo/demo.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <langinfo.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "demo/answer_lines.h"
#include "demo/find_examples.h"
#include "flush_answers.h"
#include "generate/row_source.h"
#include "open_model.h"

namespace heddle::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxTokens = 40;  // of an answer; the adapters' are shorter
constexpr const char* kCutMark = " ...";

/// The requests of the demo: the example rows that name an adapter.
std::vector<Request> read_requests(RowSource& rows) {
  std::vector<Request> requests;
  for (Row row; rows.next(row) == RowSource::Status::kRow;) {
    if (!row.request.adapter.empty()) requests.push_back(row.request);
  }
  return requests;
}

/// Lines that are written over, on a terminal; nothing elsewhere.
class RunningLines {
 public:
  void show(const std::vector<DemoQuestion>& questions) {
    if (!is_terminal_) return;
    clear();
    std::cout << running_lines(questions) << std::flush;
    num_shown_ = questions.size();
  }
  void clear() {
    if (num_shown_ > 0) std::cout << "\033[" << num_shown_ << "A\033[J";
    num_shown_ = 0;
  }

 private:
  bool is_terminal_ = isatty(STDOUT_FILENO) != 0;
  size_t num_shown_ = 0;
};

/// What the demo has asked of one engine.
class Answers {
 public:
  Answers(Engine& engine, std::vector<Request> requests)
      : engine_(engine), requests_(std::move(requests)) {
    for (const Request& request : requests_) {
      questions_.push_back({request.messages.front().content, request.adapter, "", ""});
    }
  }

  /// Every question to its adapter and to the base model, in one batch.
  void run_together();
  /// Every question to its adapter, one after another, with nothing taken from the prefix cache.
  /// Returns how many answers have the same tokens with the same bits of their probabilities.
  size_t count_same_alone();

  [[nodiscard]] const std::vector<DemoQuestion>& questions() const { return questions_; }
  [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  struct Place {
    size_t question;
    bool is_of_adapter;
  };

  void take(Event& event, Place place);

  Engine& engine_;
  std::vector<Request> requests_;
  std::vector<DemoQuestion> questions_;
  std::vector<Completion> together_;  // of the adapters, by question
  RunningLines lines_;
  int64_t num_tokens_ = 0;
  double seconds_ = 0;
};

void Answers::take(Event& event, Place place) {
  DemoQuestion& question = questions_[place.question];
  std::string& text = place.is_of_adapter ? question.of_adapter : question.of_base;
  text += event.text;
  if (!event.completion) return;
  HEDDLE_CHECK(event.completion->finish_reason != FinishReason::kError, question.prompt, ": ",
               event.completion->error);
  if (event.completion->finish_reason == FinishReason::kLength) text += kCutMark;
  num_tokens_ += static_cast<int64_t>(event.completion->token_ids.size());
  if (place.is_of_adapter) together_[place.question] = std::move(*event.completion);
}

void Answers::run_together() {
  const Clock::time_point begin = Clock::now();
  together_.resize(requests_.size());
  std::unordered_map<RequestId, Place> places;
  for (size_t i = 0; i < requests_.size(); ++i) {
    Request of_base = requests_[i];
    of_base.adapter.clear();
    places[engine_.submit(of_base)] = {i, false};
    places[engine_.submit(requests_[i])] = {i, true};
  }
  while (engine_.num_unfinished() > 0) {
    for (Event& event : engine_.step()) take(event, places.at(event.request));
    lines_.show(questions_);
  }
  lines_.clear();
  seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
}

bool have_same_bits(const Completion& a, const Completion& b) {
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  return a.token_ids == b.token_ids && std::ranges::equal(a.logprobs, b.logprobs, {}, bits, bits);
}

size_t Answers::count_same_alone() {
  size_t num_same = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    Request alone = requests_[i];
    alone.cache_salt = "alone";
    engine_.submit(alone);
    while (engine_.num_unfinished() > 0) {
      for (const Event& event : engine_.step()) {
        num_same += event.completion && have_same_bits(*event.completion, together_[i]);
      }
    }
  }
  return num_same;
}

std::string next_commands(const std::string& program, const std::string& adapters) {
  const bool can_serve = std::filesystem::exists(
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("heddle-serve"));
  const std::string serve =
      can_serve ? program + " serve --lora-root \\\n    " + adapters : "make serve";
  return "\nNext, an adapter of your own: a folder as PEFT saves it instead of this one.\n\n  " +
         program + " generate \\\n    --adapter mine=" + adapters +
         "/slug \\\n    \"Slug: My First Adapter\"\n\nOr talk to the model:\n\n  " + program +
         " chat \\\n    --adapter shell=" + adapters +
         "/shell\n\nOr serve all of them, and ask from another shell:\n\n  " + serve +
         "\n\n  curl localhost:8000/v1/completions \\\n"
         "    -H 'Content-Type: application/json' \\\n"
         "    -d '{\"model\": \"slug\", \"prompt\": \"Slug: My First Adapter\"}'\n";
}

std::string as_seconds(double seconds) {
  return std::to_string(static_cast<int64_t>(seconds)) + "." +
         std::to_string(static_cast<int64_t>(seconds * 10) % 10) + " s";
}

GenerateOptions rows_of(const DemoOptions& options, const std::string& examples) {
  GenerateOptions generate;
  generate.model.engine = options.engine;
  generate.prompts_path = examples + "/demo.jsonl";
  generate.answer.max_tokens = kMaxTokens;
  const std::string adapters = examples + "/adapters";
  for (const std::string& name : adapters_in(adapters)) {
    generate.model.adapters.push_back({name, adapters + "/" + name});
  }
  return generate;
}

}  // namespace

int demo(const DemoOptions& options, const std::string& program) {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  const std::string examples = find_examples(options.examples);
  const GenerateOptions generate = rows_of(options, examples);
  RowSource rows(generate);
  Engine engine =
      open_model(generate.model, false, [&](const Engine& opened) { rows.check_requests(opened); });
  Answers answers(engine, read_requests(rows));
  const size_t num_questions = answers.questions().size();
  std::cout << num_questions << " questions, each to the base model and to an adapter made for it,"
            << " in one batch\nof " << 2 * num_questions << " rows. Dots: cut after " << kMaxTokens
            << " tokens or 4 lines.\n"
            << std::flush;
  answers.run_together();
  for (const DemoQuestion& question : answers.questions()) {
    std::cout << "\n" << finished_lines(question);
  }
  std::cout << "\n"
            << answers.num_tokens() << " tokens in " << as_seconds(answers.seconds())
            << ", prompts included.\n"
            << std::flush;
  const size_t num_same = answers.count_same_alone();
  std::cout << "Each adapter alone, without the other rows: the same bits in " << num_same << " of "
            << num_questions << " answers.\n"
            << next_commands(program, as_typed(examples + "/adapters"));
  flush_answers(std::cout);
  return num_same == num_questions ? 0 : 1;
}

}  // namespace heddle::app
