// What of Apache ECharts the report draws with; everything else is left out of the bundle.
import * as core from "echarts/core";
import { BarChart, GaugeChart, LineChart, LinesChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  DataZoomInsideComponent,
  GridComponent,
  LegendPlainComponent,
  TooltipComponent,
} from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";

core.use([
  BarChart, GaugeChart, LineChart, LinesChart, ScatterChart,
  AriaComponent, DataZoomInsideComponent, GridComponent, LegendPlainComponent, TooltipComponent,
  CanvasRenderer,
]);

export const { init, registerTheme, connect } = core;
