--- Proposed hunks drawn into a buffer, to be accepted or rejected one by one or all at once.
---
--- Extmarks carry the hunks along when text around them changes; a hunk whose own text changes is withdrawn.
local hunk = require("midspan.hunk")

local M = {}

local namespace = vim.api.nvim_create_namespace("midspan.preview")

---@class midspan.Proposal one hunk in the buffer
---@field mark integer extmark around what goes
---@field look integer extmark that draws what comes
---@field old string what goes
---@field new string[] what comes

---@class midspan.Preview
---@field proposals midspan.Proposal[] in the order of the text
---@field n_accepted integer
---@field n_proposed integer
---@field tick? integer changedtick after the last acceptance

---@type table<integer, midspan.Preview> by buffer
local previews = {}

---@param bufnr integer
---@param proposal midspan.Proposal
---@return integer[] place row, column, end row, end column
local function place_of(bufnr, proposal)
  local mark = vim.api.nvim_buf_get_extmark_by_id(bufnr, namespace, proposal.mark, { details = true })
  return { mark[1], mark[2], mark[3].end_row, mark[3].end_col }
end

---@param bufnr integer
---@param place integer[]
---@return string
local function text_at(bufnr, place)
  local row, col, end_row, end_col = unpack(place)
  if end_row < row or (end_row == row and end_col < col) or end_row >= vim.api.nvim_buf_line_count(bufnr) then
    return ""
  end
  return table.concat(vim.api.nvim_buf_get_text(bufnr, row, col, end_row, end_col, {}), "\n")
end

---@param bufnr integer
---@param row integer
---@return string
local function line_at(bufnr, row)
  return vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ""
end

---@param bufnr integer
---@param each midspan.Hunk
---@return midspan.Proposal
local function propose(bufnr, each)
  local is_insertion = each.row == each.end_row and each.col == each.end_col
  local mark = vim.api.nvim_buf_set_extmark(bufnr, namespace, each.row, each.col, {
    end_row = each.end_row,
    end_col = each.end_col,
    -- What is typed at its ends stays outside.
    end_right_gravity = is_insertion,
    hl_group = not is_insertion and "MidspanRemoved" or nil,
    hl_eol = true,
  })
  local look = hunk.look(each, line_at(bufnr, each.row), line_at(bufnr, each.end_row))
  local options = { hl_mode = "combine" }
  if look.inline then
    options.virt_text, options.virt_text_pos = { { look.inline, "MidspanAdded" } }, "inline"
  else
    options.virt_lines_above = look.row < 0
    options.virt_lines = vim.tbl_map(function(line)
      return { { line == "" and " " or line, "MidspanAdded" } }
    end, look.below)
  end
  local col = look.inline and each.end_col or 0
  local drawn = vim.api.nvim_buf_set_extmark(bufnr, namespace, math.max(look.row, 0), col, options)
  local place = { each.row, each.col, each.end_row, each.end_col }
  return { mark = mark, look = drawn, old = text_at(bufnr, place), new = each.new }
end

---@param bufnr integer
---@param index integer
---@return midspan.Proposal
local function take(bufnr, index)
  local proposal = table.remove(previews[bufnr].proposals, index)
  vim.api.nvim_buf_del_extmark(bufnr, namespace, proposal.mark)
  vim.api.nvim_buf_del_extmark(bufnr, namespace, proposal.look)
  return proposal
end

---@param bufnr integer
local function group_of(bufnr)
  return vim.api.nvim_create_augroup("midspan.preview." .. bufnr, {})
end

--- Ends a preview that has nothing left to decide, and says what became of it.
---@param bufnr integer
local function end_if_decided(bufnr)
  local preview = previews[bufnr]
  if #preview.proposals == 0 then
    previews[bufnr] = nil
    vim.api.nvim_del_augroup_by_id(group_of(bufnr))
    vim.notify(("Midspan: %d of %d hunks accepted"):format(preview.n_accepted, preview.n_proposed))
  end
end

--- Withdraws the proposals whose own text has changed.
---@param bufnr integer
local function withdraw_stale(bufnr)
  local proposals = previews[bufnr] and previews[bufnr].proposals or {}
  if #proposals == 0 then
    return
  end
  for index = #proposals, 1, -1 do
    if text_at(bufnr, place_of(bufnr, proposals[index])) ~= proposals[index].old then
      take(bufnr, index)
      vim.notify("Midspan: a hunk was withdrawn because its text changed; ask again", vim.log.levels.WARN)
    end
  end
  end_if_decided(bufnr)
end

--- Gives the proposal at the cursor, else the next one, else the first.
---@param bufnr integer
---@return integer? index
local function at_cursor(bufnr)
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local proposals = previews[bufnr] and previews[bufnr].proposals or {}
  for index, proposal in ipairs(proposals) do
    if place_of(bufnr, proposal)[3] >= row then
      return index
    end
  end
  return proposals[1] and 1 or nil
end

---@param bufnr integer
---@param index integer
local function go_to(bufnr, index)
  local proposal = previews[bufnr].proposals[index]
  local row, col = unpack(place_of(bufnr, proposal))
  vim.api.nvim_win_set_cursor(0, { row + 1, col })
end

--- Puts what a proposal offers into the text. Acceptances with nothing typed between them are one undo step.
---@param bufnr integer
---@param index integer
local function apply(bufnr, index)
  local preview = previews[bufnr]
  local row, col, end_row, end_col = unpack(place_of(bufnr, preview.proposals[index]))
  local proposal = take(bufnr, index)
  if preview.tick == vim.b[bufnr].changedtick then
    pcall(vim.cmd.undojoin) -- fails after an undo, when there is nothing to join
  end
  vim.api.nvim_buf_set_text(bufnr, row, col, end_row, end_col, proposal.new)
  preview.n_accepted, preview.tick = preview.n_accepted + 1, vim.b[bufnr].changedtick
end

--- Draws the hunks of an answer, in place of what is proposed already.
---@param bufnr integer
---@param edits lsp.TextEdit[] ascending, not overlapping
---@param encoding string
function M.show(bufnr, edits, encoding)
  M.clear(bufnr)
  vim.api.nvim_set_hl(0, "MidspanRemoved", { default = true, link = "DiffDelete" })
  vim.api.nvim_set_hl(0, "MidspanAdded", { default = true, link = "DiffAdd" })
  local lines = vim.api.nvim_buf_get_lines(bufnr, 0, -1, false)
  local proposals = vim.tbl_map(function(edit)
    return propose(bufnr, hunk.from_edit(edit, lines, encoding))
  end, edits)
  previews[bufnr] = { proposals = proposals, n_accepted = 0, n_proposed = #proposals }
  local group = group_of(bufnr)
  -- What is typed and left at once fires InsertLeave only.
  vim.api.nvim_create_autocmd({ "TextChanged", "TextChangedI", "TextChangedP", "InsertLeave" }, {
    group = group,
    buffer = bufnr,
    callback = function()
      withdraw_stale(bufnr)
    end,
  })
  vim.api.nvim_create_autocmd("BufUnload", {
    group = group,
    buffer = bufnr,
    callback = function()
      previews[bufnr] = nil
    end,
  })
end

--- Takes away what is proposed without a word.
---@param bufnr integer
function M.clear(bufnr)
  if previews[bufnr] then
    previews[bufnr] = nil
    vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
    vim.api.nvim_del_augroup_by_id(group_of(bufnr))
  end
end

---@alias midspan.Verb "accept"|"reject"
---@type table<midspan.Verb, fun(bufnr: integer, index: integer)>
local verbs = { accept = apply, reject = take }

--- Decides on the hunk at the cursor, else on the next one, and goes on to the one after it.
---@param bufnr integer
---@param verb midspan.Verb
---@return boolean decided false when nothing is proposed
function M.decide_one(bufnr, verb)
  withdraw_stale(bufnr)
  local index = at_cursor(bufnr)
  if not index then
    return false
  end
  verbs[verb](bufnr, index)
  local n = #previews[bufnr].proposals
  if n > 0 then
    go_to(bufnr, math.min(index, n))
  end
  end_if_decided(bufnr)
  return true
end

--- Decides on all hunks; all acceptances are one undo step.
---@param bufnr integer
---@param verb midspan.Verb
---@return boolean decided false when nothing is proposed
function M.decide_all(bufnr, verb)
  withdraw_stale(bufnr)
  if not previews[bufnr] then
    return false
  end
  for index = #previews[bufnr].proposals, 1, -1 do
    verbs[verb](bufnr, index)
  end
  end_if_decided(bufnr)
  return true
end

--- Goes to the hunk after the one at the cursor, or to the one before it, around the end of the text.
---@param bufnr integer
---@param step integer 1 or -1
function M.move(bufnr, step)
  local index = at_cursor(bufnr)
  if not index then
    return
  end
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local proposals = previews[bufnr].proposals
  local first, _, last = unpack(place_of(bufnr, proposals[index]))
  local is_on_it = first <= row and row <= last
  if is_on_it or step < 0 then
    index = (index - 1 + step) % #proposals + 1
  end
  go_to(bufnr, index)
end

return M
