#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"
#include "files/json.h"

namespace heddle::model {

/// The name of a setting in config.json and, after "<architecture>.", in GGUF; empty where a
/// format does not have it.
struct SettingName {
  std::string_view folder, gguf;
};

/// The settings of a model, whatever format they are in. Errors name file, key and value. Null and
/// missing are the same.
class Settings {
 public:
  virtual ~Settings() = default;

  [[nodiscard]] virtual bool is_gguf() const = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
  /// The whole key: "llama.block_count", "num_hidden_layers".
  [[nodiscard]] virtual std::string key(const SettingName& name) const = 0;
  /// "FILE: llama.block_count": what errors begin with.
  [[nodiscard]] std::string where(const SettingName& name) const {
    return path() + ": " + key(name);
  }
  [[nodiscard]] virtual bool has(const SettingName& name) const = 0;
  [[nodiscard]] virtual int64_t integer(const SettingName& name) const = 0;
  [[nodiscard]] virtual double number(const SettingName& name) const = 0;
  [[nodiscard]] virtual bool flag(const SettingName& name) const = 0;
  [[nodiscard]] virtual std::string text(const SettingName& name) const = 0;
  [[nodiscard]] virtual std::vector<double> numbers(const SettingName& name) const = 0;
  [[nodiscard]] virtual std::vector<std::string> texts(const SettingName& name) const = 0;

  /// Settings that others make void: they count as read.
  void mark_void(std::initializer_list<SettingName> names) const {
    for (const SettingName& name : names) (void)has(name);
  }

  /// 1 to 2^31 - 1.
  [[nodiscard]] int64_t extent(const SettingName& name) const;
  [[nodiscard]] double positive(const SettingName& name) const;
  [[nodiscard]] int64_t extent_or(const SettingName& name, int64_t fallback) const {
    return has(name) ? extent(name) : fallback;
  }
  [[nodiscard]] double number_or(const SettingName& name, double fallback) const {
    return has(name) ? number(name) : fallback;
  }
  [[nodiscard]] double positive_or(const SettingName& name, double fallback) const {
    return has(name) ? positive(name) : fallback;
  }
  [[nodiscard]] bool flag_or(const SettingName& name, bool fallback) const {
    return has(name) ? flag(name) : fallback;
  }
  [[nodiscard]] std::string text_or(const SettingName& name, std::string_view fallback) const {
    return has(name) ? text(name) : std::string(fallback);
  }
};

/// Settings of a GGUF file, which outlives the object: those of its general.architecture.
class GgufSettings : public Settings {
 public:
  explicit GgufSettings(const files::GgufFile& file);

  [[nodiscard]] const files::GgufFile& file() const { return file_; }
  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] bool is_gguf() const override { return true; }
  [[nodiscard]] std::string key(const SettingName& name) const override;
  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  [[nodiscard]] bool has(const SettingName& name) const override;
  [[nodiscard]] int64_t integer(const SettingName& name) const override;
  [[nodiscard]] double number(const SettingName& name) const override;
  [[nodiscard]] bool flag(const SettingName& name) const override;
  [[nodiscard]] std::string text(const SettingName& name) const override;
  [[nodiscard]] std::vector<double> numbers(const SettingName& name) const override;
  [[nodiscard]] std::vector<std::string> texts(const SettingName& name) const override;

  /// Keys of the architecture that were never read, in the file's order.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  /// The whole key, which counts as read from now on.
  [[nodiscard]] std::string read(const SettingName& name) const;

  const files::GgufFile& file_;
  std::string architecture_;
  mutable std::set<std::string, std::less<>> read_;
};

/// Settings of a JSON object, which outlives this one. Key "a.b" is member b of member a: an error
/// where a exists and is no object.
class JsonSettings : public Settings {
 public:
  /// section: where the object lies in its file, "text_config." or nothing. defaults: an object of
  /// what holds where a key is missing, though not where it is null; may be null itself.
  JsonSettings(const files::Json& object, std::string path, std::string section = "",
               const files::Json* defaults = nullptr)
      : object_(object),
        path_(std::move(path)),
        section_(std::move(section)),
        defaults_(defaults) {}

  [[nodiscard]] bool is_gguf() const override { return false; }
  [[nodiscard]] std::string key(const SettingName& name) const override;
  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] bool has(const SettingName& name) const override;
  [[nodiscard]] int64_t integer(const SettingName& name) const override;
  [[nodiscard]] double number(const SettingName& name) const override;
  [[nodiscard]] bool flag(const SettingName& name) const override;
  [[nodiscard]] std::string text(const SettingName& name) const override;
  [[nodiscard]] std::vector<double> numbers(const SettingName& name) const override;
  [[nodiscard]] std::vector<std::string> texts(const SettingName& name) const override;

  /// Top-level keys that were never read, in order, with the section before them.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  [[nodiscard]] const files::Json* find(const SettingName& name) const;
  [[nodiscard]] const files::Json& get(const SettingName& name) const;
  [[noreturn]] void wrong(const SettingName& name, const files::Json& value,
                          const char* expected) const;

  const files::Json& object_;
  std::string path_, section_;
  const files::Json* defaults_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace heddle::model
