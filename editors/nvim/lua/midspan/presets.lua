--- What kinds of edit the checkpoint can do, and choosing one.
local M = {}

local METHOD = "midspan/editPresets"

---@class midspan.Preset
---@field id string
---@field title string
---@field strength number

---@class midspan.Presets
---@field presets midspan.Preset[]
---@field instructions boolean whether it follows instructions in words

---@param presets midspan.Presets
---@return string[]
local function ids(presets)
  return vim.tbl_map(function(preset)
    return preset.id
  end, presets.presets)
end

--- Gives the presets' names; none when the server does not answer in time.
---@param bufnr integer
---@param timeout_ms integer
---@return string[]
function M.names(bufnr, timeout_ms)
  local client = vim.lsp.get_clients({ bufnr = bufnr, name = "midspan" })[1]
  local response = client and client:request_sync(METHOD, vim.empty_dict(), timeout_ms, bufnr)
  return response and response.result and ids(response.result) or {}
end

---@param presets midspan.Presets
---@param ask fun(how: { preset?: string, instruction?: string })
local function select(presets, ask)
  local choices = vim.list_extend({}, presets.presets)
  if presets.instructions then
    choices[#choices + 1] = { title = "Say what to change …" }
  end
  local options = {
    prompt = "Edit with Midspan",
    format_item = function(choice)
      return choice.title
    end,
  }
  vim.ui.select(choices, options, function(choice)
    if choice and choice.id then
      ask({ preset = choice.id })
    elseif choice then
      vim.ui.input({ prompt = "Instruction: " }, function(instruction)
        if instruction and instruction ~= "" then
          ask({ instruction = instruction })
        end
      end)
    end
  end)
end

--- Asks for the edit that `text` names, a preset or an instruction; lets the user choose when it names none.
---@param bufnr integer
---@param range midspan.Range
---@param text string
function M.choose(bufnr, range, text)
  local edit = require("midspan.edit")
  local client = edit.client_of(bufnr)
  if not client then
    return
  end
  local function ask(how)
    edit.edit(client, bufnr, range, how)
  end
  client:request(METHOD, vim.empty_dict(), function(err, presets)
    if err then
      vim.notify("Midspan: this server edits nothing; install a newer midspan: " .. err.message, vim.log.levels.ERROR)
    elseif text == "" then
      select(presets, ask)
    else
      ask(vim.list_contains(ids(presets), text) and { preset = text } or { instruction = text })
    end
  end, bufnr)
end

return M
