#include "embed_options.h"

#include <limits>
#include <map>

#include "command_line.h"
#include "option_group.h"

namespace heddle::app {
namespace {

void add_value_options(CLI::App& command, WantedValues& values) {
  const OptionGroup group(command, "Values");
  command
      .add_flag_callback(
          "--classify", [&values] { values.kind = WantedValues::Kind::kClasses; },
          "Probabilities of labels, by the score head of the adapter or the model, in place of "
          "embeddings")
      ->group("Values");
  group
      .value("--pooling", values.pooling, "HOW",
             "How the states of the tokens become one vector: last, mean or cls; without it as the "
             "model's folder says, otherwise last")
      ->check(CLI::IsMember({"last", "mean", "cls"}));
  group.number("--dimensions", values.dimensions, 0, std::numeric_limits<int>::max(), "N",
               "Keeps the first N numbers of each embedding; 0: all");
  command
      .add_flag_callback(
          "--no-normalize", [&values] { values.normalize = false; },
          "Does not divide embeddings by their length")
      ->group("Values");
}

}  // namespace

void add_embed(CLI::App& app, GenerateOptions& options) {
  options.raw = options.json = options.ordered = true;
  options.answer.values.kind = WantedValues::Kind::kEmbedding;
  CLI::App* command =
      app.add_subcommand("embed", "Turns texts into embeddings or classes, each with its adapter");
  const OptionGroup input(*command, "Input");
  input
      .value("FILE", options.prompts_path, "",
             "File with a text or a JSON object on each line; - reads standard input as lines "
             "arrive")
      ->required();
  const std::map<std::string, LineFormat> formats = {
      {"auto", LineFormat::kAuto}, {"jsonl", LineFormat::kJson}, {"text", LineFormat::kText}};
  input
      .value("--input", options.input, "",
             "Format of the lines: jsonl, a JSON object each; text, a text each; auto: jsonl if "
             "the file name says so or the first line begins with {, otherwise text")
      ->transform(CLI::CheckedTransformer(formats).description(""))
      ->default_str("auto")
      ->type_name("FORMAT");
  input.flag("--keep-going", options.keep_going,
             "Answers invalid rows of a file with their error, and runs the others");
  add_model_options(*command, options.model);
  add_max_batch(*command, options.model.engine);
  add_value_options(*command, options.answer.values);
  const OptionGroup output(*command, "Output");
  output.value("--use", options.answer.use, "NAME", "Adapter to use; base: the model without one");
  output.value("--resume", options.resume_path, "FILE",
               "Appends rows to this file and skips those that it already has");
  output.value("--stats", options.stats_path, "FILE", "Writes times and counts to this file");
  output.flag("-q,--quiet", options.quiet, "No progress, statistics or notes");
  command->footer("heddle embed -m models/embedder texts.txt");
}

}  // namespace heddle::app
