#include "generate/row_source.h"

#include <limits>

#include "heddle/core/error.h"

#include "answer_options.h"
#include "open_model.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

/// Where lines come from: --prompts, or the single prompt "-". Empty: nowhere.
std::string path_of_lines(const GenerateOptions& options) {
  const bool is_dash = options.prompts.size() == 1 && options.prompts.front() == "-";
  return is_dash ? "-" : options.prompts_path;
}

bool is_called_json(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension();
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

bool begins_with_brace(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t");
  return first != std::string::npos && line[first] == '{';
}

RowDefaults defaults_of(const GenerateOptions& options, bool from_lines) {
  // The model may say how long answers are: before it is loaded nothing is longer than they.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  RowDefaults defaults{.answer = complete_answer(options.answer, {.max_tokens = kMost}),
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

RowSource::RowSource(const GenerateOptions& options) : options_(options), format_(options.input) {
  const std::string path = path_of_lines(options);
  HEDDLE_CHECK(
      !path.empty() || !options.prompts.empty(),
      "generate: no prompts; give prompts as arguments, --prompts FILE, or - for the lines "
      "of standard input");
  HEDDLE_CHECK(!path.empty() || options.input == LineFormat::kAuto,
               "--input: prompts on the command line are text; it is for --prompts and -");
  HEDDLE_CHECK(!options.raw || !options.answer.system,
               "--system: it needs the chat template, which --raw does not use");
  defaults_ = defaults_of(options, !path.empty());
  if (!path.empty()) {
    lines_.emplace(path);
    if (format_ == LineFormat::kAuto && is_called_json(path)) format_ = LineFormat::kJson;
    if (format_ == LineFormat::kText) use_text();
  } else {
    num_rows_ = static_cast<int64_t>(options.prompts.size());
  }
}

Row RowSource::prompt_row(const std::string& prompt, int64_t index) const {
  Row row{.index = index};
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
    row = prompt_row(options_.prompts[static_cast<size_t>(next_index_)], next_index_);
    used_.insert(row.request.adapter);
    ++next_index_;
    return Status::kRow;
  }
  std::string text;
  const LineReader::Status status = next_line(text);
  if (status == LineReader::Status::kNotYet) return Status::kNotYet;
  if (status == LineReader::Status::kEnd) return Status::kEnd;
  if (format_ == LineFormat::kAuto) set_format(text);
  row = Row{.index = next_index_++};
  try {
    parse_line(text, row);
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

/// The next line with text in it, without a mark of its encoding and the end that Windows has.
LineReader::Status RowSource::next_line(std::string& text) {
  constexpr std::string_view kUtf8 = "\xEF\xBB\xBF", kUtf16[] = {"\xFF\xFE", "\xFE\xFF"};
  do {
    const LineReader::Status status = lines_->next(text);
    if (status != LineReader::Status::kLine) return status;
    if (lines_->line_number() == 1) {
      HEDDLE_CHECK(!text.starts_with(kUtf16[0]) && !text.starts_with(kUtf16[1]), lines_->name(),
                   ": is UTF-16, expected UTF-8");
      if (text.starts_with(kUtf8)) text.erase(0, kUtf8.size());
    }
    if (text.ends_with('\r')) text.pop_back();
  } while (text.find_first_not_of(" \t\r") == std::string::npos);
  return LineReader::Status::kLine;
}

void RowSource::set_format(const std::string& first_line) {
  if (begins_with_brace(first_line)) {
    format_ = LineFormat::kJson;
  } else {
    format_ = LineFormat::kText;
    use_text();
  }
}

/// Lines are prompts, which take what those of the command line do.
void RowSource::use_text() {
  defaults_.adapter = adapter_in_use(options_.model, options_.answer.use);
}

void RowSource::parse_line(const std::string& text, Row& row) {
  const std::string where = place();
  HEDDLE_CHECK(text.size() <= LineReader::kMaxLineBytes, where, ": the line has more than ",
               LineReader::kMaxLineBytes, " bytes");
  const bool by_first_line = options_.input == LineFormat::kAuto && !is_called_json(lines_->name());
  const bool is_object = begins_with_brace(text);
  if (format_ == LineFormat::kJson) {
    HEDDLE_CHECK(!by_first_line || is_object, where,
                 ": the line does not begin with {, but the first line is a JSON object; "
                 "--input text makes each line a prompt");
    return parse_row(text, where, defaults_, row);
  }
  HEDDLE_CHECK(!by_first_line || !is_object, where,
               ": the line begins with {, but the first line is plain text; give --input text or "
               "--input jsonl");
  HEDDLE_CHECK(is_utf8(text), where, ": the line is not UTF-8");
  row = prompt_row(text, row.index);
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
        if (list.size() < 2) one.merge = {};
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
  defaults_.answer = complete_answer(options_.answer, engine.model().generation);
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
