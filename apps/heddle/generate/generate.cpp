#include "generate/generate.h"

#include <csignal>
#include <iostream>
#include <optional>
#include <unistd.h>
#include <unordered_map>
#include <vector>

#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "generate/answer_writer.h"
#include "generate/fingerprint.h"
#include "generate/progress.h"
#include "generate/resume_file.h"
#include "generate/row_source.h"
#include "generate/signals.h"
#include "generate/statistics.h"
#include "open_model.h"
#include "output_file.h"

namespace heddle::app {
namespace {

constexpr int kExitOfSignals = 128;  // + the signal's number, as shells have it

bool writes_json(const GenerateOptions& options) {
  return options.json || !options.resume_path.empty();
}

/// Refuses options that would do nothing.
void check_options(const GenerateOptions& options) {
  const bool json = writes_json(options);
  HEDDLE_CHECK(json || !options.logprobs, "--logprobs: only answers in JSON have them (--json)");
  const bool has_hold = options.hold != GenerateOptions{}.hold;
  HEDDLE_CHECK(!has_hold || !json || options.ordered,
               "--hold: finished rows wait only with --ordered");
}

AnswerWriter::Form form_of(const GenerateOptions& options, const RowSource& rows) {
  if (writes_json(options)) {
    return options.ordered ? AnswerWriter::Form::kOrderedJson : AnswerWriter::Form::kJson;
  }
  return rows.num_rows() == 1 ? AnswerWriter::Form::kBareText : AnswerWriter::Form::kText;
}

void tell_unused_adapters(const GenerateOptions& options, const RowSource& rows) {
  if (options.quiet) return;
  for (const std::string& name : rows.unused_adapters()) {
    spdlog::info("note: no row uses adapter {}", name);
  }
}

/// One run of `generate`: takes rows from the source into the engine, and writes what becomes of
/// them.
class Run {
 public:
  Run(const GenerateOptions& options, RowSource& rows, Engine& engine, ResumeFile* resume,
      const StopSignal& signal)
      : options_(options),
        rows_(rows),
        engine_(engine),
        resume_(resume),
        writer_(resume == nullptr ? std::cout : resume->append(), form_of(options, rows),
                options.logprobs, options.answer.values.kind),
        progress_(isatty(STDERR_FILENO) != 0, rows.num_rows(), Progress::Clock::now()),
        signal_(signal) {
    if (writes_json(options)) fingerprint_.emplace(options, engine.model().files);
    // Text that streams to the same terminal would be torn apart by the line.
    const bool is_shared = isatty(STDERR_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
    shows_progress_ = !options.quiet && (!is_shared || resume != nullptr);
  }

  /// Until all rows are answered or a signal comes; returns the signal or 0.
  int run();
  [[nodiscard]] RowCounts counts() const {
    return {writer_.num_finished(), writer_.num_failed(), num_skipped_};
  }

 private:
  /// What a request answers: a row, or the row with one of each_adapter, or one of n answers.
  struct Place {
    int64_t index;
    std::optional<size_t> part;
  };
  /// A row of several answers.
  struct Group {
    std::vector<Completion> completions;
    size_t num_left;
  };

  bool has_room() const;
  void admit_rows();
  void begin(const Row& row);
  void step();
  void show_progress();

  const GenerateOptions& options_;
  RowSource& rows_;
  Engine& engine_;
  ResumeFile* resume_;                      // null: answers go to standard output
  std::optional<Fingerprint> fingerprint_;  // for answers in JSON, which alone have a hash
  AnswerWriter writer_;
  Progress progress_;
  bool shows_progress_;
  const StopSignal& signal_;
  std::unordered_map<RequestId, Place> place_of_;  // of rows in the engine
  std::unordered_map<int64_t, Group> groups_;      // rows of several answers, by index
  RowSource::Status input_ = RowSource::Status::kRow;
  int64_t num_skipped_ = 0;
};

bool Run::has_room() const {
  return engine_.num_unfinished() < engine_.options().max_batch &&
         writer_.num_held() < options_.hold;
}

/// Submits the rows that have arrived and fit.
void Run::admit_rows() {
  Row row;
  while (has_room() && signal_.received() == 0) {
    input_ = rows_.next(row);
    if (input_ != RowSource::Status::kRow) return;
    begin(row);
  }
}

void Run::begin(const Row& row) {
  AnswerHead head{.index = row.index,
                  .id = row.id,
                  .custom_id = row.custom_id,
                  .metadata = row.metadata,
                  .adapter = row.request.adapter,
                  .adapters = row.request.adapters,
                  .each = row.each,
                  .merge = row.request.merge,
                  .n = row.n};
  if (!row.error.empty()) {
    head.each.clear();
    head.n = 1;
    writer_.begin_row(std::move(head));
    Completion completion;
    completion.finish_reason = FinishReason::kError;
    completion.error = row.error;
    completion.error_code = RequestError::kInvalidArgument;
    writer_.finish_row(row.index, std::move(completion));
    return;
  }
  if (fingerprint_) head.hash = fingerprint_->of(row);
  if (resume_ != nullptr && resume_->answers(row, head.hash)) {
    ++num_skipped_;
    return;
  }
  writer_.begin_row(std::move(head));
  if (row.each.empty() && row.n == 1) {
    place_of_[engine_.submit(row.request)] = {row.index, std::nullopt};
    return;
  }
  std::vector<RequestVariant> variants;
  if (row.each.empty()) variants = sample_variants(row.n);
  for (const AdapterList& list : row.each) variants.push_back({.adapters = list});
  const std::vector<RequestId> ids = engine_.submit_each(row.request, variants);
  for (size_t i = 0; i < ids.size(); ++i) place_of_[ids[i]] = {row.index, i};
  groups_[row.index] = {.completions = std::vector<Completion>(ids.size()), .num_left = ids.size()};
}

void Run::step() {
  for (Event& event : engine_.step()) {
    const auto [index, part] = place_of_.at(event.request);
    if (!part) writer_.add_text(index, event.text);
    if (!event.completion) continue;
    place_of_.erase(event.request);
    if (!part) {
      writer_.finish_row(index, std::move(*event.completion));
      continue;
    }
    Group& group = groups_.at(index);
    group.completions[*part] = std::move(*event.completion);
    if (--group.num_left > 0) continue;
    writer_.finish_row(index, std::move(group.completions));
    groups_.erase(index);
  }
}

void Run::show_progress() {
  if (!shows_progress_) return;
  const int64_t num_done = writer_.num_finished() + num_skipped_;
  std::cerr << progress_.update(num_done, engine_.stats(), Progress::Clock::now()) << std::flush;
}

int Run::run() {
  while (signal_.received() == 0) {
    admit_rows();
    if (engine_.num_unfinished() > 0) {
      step();
    } else if (input_ == RowSource::Status::kEnd) {
      break;
    } else if (input_ == RowSource::Status::kNotYet) {
      signal_.wait_for(rows_.fd());
    }
    show_progress();
  }
  if (shows_progress_) std::cerr << progress_.end();
  writer_.interrupt();
  return signal_.received();
}

}  // namespace

namespace {

int generate(const GenerateOptions& options, RowSource& rows, const StopSignal& stop) {
  std::optional<OutputFile> stats;
  if (!options.stats_path.empty()) stats.emplace("--stats", options.stats_path);
  std::optional<ResumeFile> resume;
  if (!options.resume_path.empty()) resume.emplace(options.resume_path);
  ModelOptions model = options.model;
  model.engine.on_load = [&](int64_t /*done*/, int64_t /*total*/) { stop.check(); };
  Engine engine = open_model(model, options.quiet, [&](const Engine& opened) {
    rows.check_requests(opened);
    if (!options.quiet) tell_engine(opened);
  });
  if (rows.num_rows()) tell_unused_adapters(options, rows);

  Run run(options, rows, engine, resume ? &*resume : nullptr, stop);
  const int signal = run.run();
  const RowCounts counts = run.counts();
  if (!rows.num_rows() && signal == 0) tell_unused_adapters(options, rows);
  const bool speculates = engine.options().speculation.method != "off";
  if (!options.quiet) print_statistics(engine.stats(), counts, speculates);
  if (stats) stats->write(statistics_json(engine.stats(), counts, speculates));
  if (signal != 0) return kExitOfSignals + signal;
  return counts.failed > 0 ? 1 : 0;
}

}  // namespace

int generate(const GenerateOptions& options) {
  check_options(options);
  RowSource rows(options);
  rows.check_lines();
  try {
    return generate(options, rows, StopSignal());
  } catch (const StopSignal::Stopped& stopped) {
    return kExitOfSignals + stopped.signal;
  }
}

}  // namespace heddle::app
