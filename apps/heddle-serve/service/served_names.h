#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

#include "api/generation.h"

namespace heddle::serve {

/// An adapter that requests may name.
struct ServedAdapter {
  std::string path;
  int64_t created = 0;    // seconds since 1970
  int64_t id = 0;         // in the order in which names were first known; stays with the name
  bool is_added = false;  // it stays in memory until it is unloaded; else it is of --lora-root
};

/// The name of a model that is given none: the hub name that it was given by, or in whose cache it
/// is; else that of its folder, or of its GGUF file without ".gguf" and the number of its part.
[[nodiscard]] std::string usual_name(const std::string& model_path);

/// The names that requests may use. Of the thread of the network.
class ServedNames {
 public:
  /// The names of the base model.
  struct Base {
    std::vector<std::string> listed{};  // in /v1/models, at least one; the first in answers
    std::vector<std::string> others{};  // that requests may have, too
  };
  /// `model_path` is where the base model lies.
  ServedNames(Base base, std::string lora_root, const std::string& model_path);

  [[nodiscard]] const std::string& base() const { return base_.listed.front(); }
  [[nodiscard]] const std::vector<std::string>& listed_bases() const { return base_.listed; }
  [[nodiscard]] bool is_base(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, ServedAdapter>& adapters() const { return adapters_; }
  [[nodiscard]] const std::string& lora_root() const { return lora_root_; }

  void add(const std::string& name, ServedAdapter adapter);
  /// The name does not exist from here on, also where the folder of adapters has it, until it is
  /// added again.
  bool remove(const std::string& name);
  /// Lists the folder of adapters anew: what has come or gone there.
  void reread();
  /// Where the folder of adapters has one that requests may name so; empty: nowhere.
  [[nodiscard]] std::string in_root(const std::string& name) const;

  /// Names by the adapters' ids.
  [[nodiscard]] std::map<int64_t, std::string> ids() const;
  /// The adapters, and scales, of requests that name none; the base model by kBaseName has none.
  void set_defaults(AdapterList adapters) { defaults_ = std::move(adapters); }
  [[nodiscard]] float default_scale(const std::string& name) const;

  /// Whether the name is one of the base model or of an adapter on this machine.
  [[nodiscard]] bool knows(const std::string& name) const;
  /// The adapters of the request into it. Throws ApiError where one does not exist.
  void resolve(const ModelChoice& choice, Request& request);
  /// A message of the engine without the folders of this machine: what is in the folder of adapters
  /// is named from there.
  [[nodiscard]] std::string without_folders(std::string message) const;
  /// Leaves this folder out, too.
  void hide_folder(const std::string& folder) { folders_.push_back(folder + "/"); }
  /// The name that an answer has in `model`.
  [[nodiscard]] std::string answer_name(const ModelChoice& choice) const;

 private:
  [[nodiscard]] std::optional<std::string> known_as(const std::string& name) const;
  std::string adapter_of(const std::string& name);
  [[nodiscard]] bool is_version(const std::string& name) const;

  Base base_;
  std::string lora_root_;
  std::vector<std::string> folders_;  // that no client may learn
  std::map<std::string, ServedAdapter> adapters_;
  std::set<std::string> removed_;       // which the folder may still have
  std::map<std::string, int64_t> ids_;  // also of names that are gone
  AdapterList defaults_;
};

}  // namespace heddle::serve
