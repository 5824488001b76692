#include "generate/row_source.h"

#include "heddle/core/error.h"

#include "open_model.h"

namespace heddle::app {
namespace {

/// Where lines come from: --prompts, or the single prompt "-". Empty: nowhere.
std::string path_of_lines(const GenerateOptions& options) {
  const bool is_dash = options.prompts.size() == 1 && options.prompts.front() == "-";
  return is_dash ? "-" : options.prompts_path;
}

RowDefaults defaults_of(const GenerateOptions& options, bool from_lines) {
  RowDefaults defaults{.answer = options.answer,
                       .raw = options.raw,
                       .finds_adapters = !options.model.engine.adapter_dir.empty()};
  for (const NamedAdapter& adapter : options.model.adapters) {
    defaults.adapters.push_back(adapter.name);
  }
  const bool is_base = from_lines && options.answer.use.empty();
  defaults.adapter = is_base ? "" : adapter_in_use(options.model, options.answer.use);
  return defaults;
}

}  // namespace

RowSource::RowSource(const GenerateOptions& options) : options_(options) {
  const std::string path = path_of_lines(options);
  HEDDLE_CHECK(!path.empty() || !options.prompts.empty(),
               "generate: no prompts; give --prompts FILE or prompts as arguments");
  HEDDLE_CHECK(!options.raw || !options.answer.system,
               "--system: with --raw there is no chat template that it could stand in");
  defaults_ = defaults_of(options, !path.empty());
  if (!path.empty()) {
    lines_.emplace(path);
  } else {
    num_rows_ = static_cast<int64_t>(options.prompts.size());
  }
}

Row RowSource::prompt_row(const std::string& prompt) const {
  Row row{.index = next_index_};
  row.request = default_request(defaults_, row.index);
  row.n = options_.answer.n;
  if (options_.raw) {
    row.request.text = prompt;
    return row;
  }
  if (options_.answer.system) row.request.messages.push_back({"system", *options_.answer.system});
  row.request.messages.push_back({"user", prompt});
  return row;
}

std::string RowSource::place() const {
  return lines_ ? lines_->name() + ", line " + std::to_string(lines_->line_number())
                : "prompt " + std::to_string(next_index_ - 1);
}

RowSource::Status RowSource::next(Row& row) {
  if (!lines_) {
    if (next_index_ == std::ssize(options_.prompts)) return Status::kEnd;
    row = prompt_row(options_.prompts[static_cast<size_t>(next_index_)]);
    used_.insert(row.request.adapter);
    ++next_index_;
    return Status::kRow;
  }
  std::string text;
  do {
    const LineReader::Status status = lines_->next(text);
    if (status == LineReader::Status::kNotYet) return Status::kNotYet;
    if (status == LineReader::Status::kEnd) return Status::kEnd;
  } while (text.find_first_not_of(" \t\r") == std::string::npos);
  row = Row{.index = next_index_++};
  const std::string where = place();
  try {
    HEDDLE_CHECK(text.size() <= LineReader::kMaxLineBytes, where, ": the line has more than ",
                 LineReader::kMaxLineBytes, " bytes");
    parse_row(text, where, defaults_, row);
    used_.insert(row.request.adapter);
    for (const AdapterWeight& adapter : row.request.adapters) used_.insert(adapter.name);
    for (const AdapterList& list : row.each) {
      for (const AdapterWeight& adapter : list) used_.insert(adapter.name);
    }
  } catch (const Error& error) {
    row.error = error.what();
  }
  return Status::kRow;
}

/// Reads the rows to the end and starts again. `engine` is null before the model is loaded.
void RowSource::check_all(const Engine* engine) {
  Row row;
  while (next(row) == Status::kRow) {
    if (options_.keep_going) continue;
    if (!row.error.empty()) throw_error(ErrorCode::kInvalidArgument, row.error);
    if (engine == nullptr) continue;
    try {
      if (row.each.empty()) engine->check(row.request);
      for (const AdapterList& list : row.each) {
        Request one = row.request;
        one.adapters = list;
        engine->check(one);
      }
    } catch (const Error& error) {
      throw_error(ErrorCode::kInvalidArgument, place(), ": ", error.what());
    }
  }
  num_rows_ = next_index_;
  next_index_ = 0;
  if (lines_) lines_->rewind();
}

void RowSource::check_lines() {
  if (lines_ && lines_->is_regular()) check_all(nullptr);
}

void RowSource::check_requests(const Engine& engine) {
  defaults_.base_names = names_of_base(engine.model());
  check_adapter_names(engine.model(), options_.model, defaults_.base_names);
  if (!lines_ || lines_->is_regular()) check_all(&engine);
}

std::vector<std::string> RowSource::unused_adapters() const {
  std::vector<std::string> unused;
  for (const std::string& name : defaults_.adapters) {
    if (!used_.contains(name)) unused.push_back(name);
  }
  return unused;
}

}  // namespace heddle::app
